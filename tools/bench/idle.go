package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

func idleStandard(ctx context.Context, e *Env) ([]Result, error) {
	return idle(ctx, e, "", workspace.LevelStandard, many(1000, 100), 4)
}

func idleHigh(ctx context.Context, e *Env) ([]Result, error) {
	return idle(ctx, e, "_high", workspace.LevelHigh, many(100, 20), 25)
}

func many(all, few int) int {
	if quick {
		return few
	}
	return all
}

// idle fills a pool with n members and gives the available memory that the machine lost by each.
func idle(ctx context.Context, e *Env, suffix, level string, n int, most float64) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.first(ctx, w, workspace.SandboxCreate{Level: level}); err != nil { // the image is there after it
		return nil, err
	}
	e.killLater(ctx, w)
	before, err := available(ctx)
	if err != nil {
		return nil, err
	}
	var lost float64
	err = w.warm(ctx, level, n, 0, func(ready func(int) error) error {
		if err := ready(n); err != nil {
			return err
		}
		now, err := available(ctx)
		lost = (before - now) / float64(n)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := newResult("idle_sandbox"+suffix, "MiB", []float64{lost})
	r.N = n
	d := newResult("density"+suffix, "in 24GiB", []float64{24 * 1024 / lost})
	d.N = n
	return []Result{r.median(most), d}, nil
}

// available is the machine's available memory in MiB once it no longer changes much: 5 looks within 2 MiB of each other.
func available(ctx context.Context) (float64, error) {
	var looks []float64
	for range 120 {
		kib, err := memAvailable()
		if err != nil {
			return 0, err
		}
		looks = append(looks, kib/1024)
		if k := len(looks); k >= 5 && slices.Max(looks[k-5:])-slices.Min(looks[k-5:]) < 2 {
			break
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return looks[len(looks)-1], nil
}

func memAvailable() (float64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			return strconv.ParseFloat(strings.Fields(v)[0], 64)
		}
	}
	return 0, fmt.Errorf("/proc/meminfo does not tell MemAvailable")
}

func refillStandard(ctx context.Context, e *Env) ([]Result, error) {
	return refill(ctx, e, "refill_cpu", workspace.LevelStandard, 40)
}

func refillHigh(ctx context.Context, e *Env) ([]Result, error) {
	return refill(ctx, e, "refill_cpu_high", workspace.LevelHigh, 10)
}

// refill fills a pool and gives the CPU time of all that ran meanwhile, less what the machine used before by itself.
func refill(ctx context.Context, e *Env, name, level string, n int) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.first(ctx, w, workspace.SandboxCreate{Level: level}); err != nil {
		return nil, err
	}
	e.killLater(ctx, w)
	if _, err := available(ctx); err != nil { // what was done before settles
		return nil, err
	}
	const quiet = 3 * time.Second
	at := busy()
	if err := pause(ctx, quiet); err != nil {
		return nil, err
	}
	idle := (busy() - at) / quiet.Seconds() // ms a second
	at = busy()
	start := time.Now()
	var each float64
	err = w.warm(ctx, level, n, 0, func(ready func(int) error) error {
		err := ready(n)
		each = (busy() - at - idle*time.Since(start).Seconds()) / float64(n)
		return err
	})
	r := newResult(name, "ms", []float64{each})
	r.N = n
	return one(r, err)
}

// busy is the CPU time in ms that the machine has spent on anything.
func busy() float64 {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	var ticks float64
	for i, f := range strings.Fields(line) {
		if v, err := strconv.ParseFloat(f, 64); err == nil && (i < 4 || i == 6 || i == 7) { // user, nice, system, irq, softirq
			ticks += v
		}
	}
	return ticks * 10 // 100 ticks a second
}

// soakResults tells of the last soak: how many sandboxes, how fast, and what is left of them.
func soakResults(_ context.Context, e *Env) ([]Result, error) {
	path := filepath.Join(e.root, "dist", "soak.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; run make soak SOAK=10000 first", err)
	}
	var s struct {
		Sandboxes     int
		Seconds       float64
		Kills         map[string]int
		Before, After map[string]int
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	left := 0
	for _, kind := range slices.Sorted(maps.Keys(s.After)) {
		left += max(0, s.After[kind]-s.Before[kind])
	}
	r, speed := newResult("soak_left", "things", []float64{float64(left)}), newResult("soak_rate", "box/s", []float64{float64(s.Sandboxes) / s.Seconds})
	r.N, speed.N = s.Sandboxes, s.Sandboxes
	return []Result{r.median(0), speed}, nil
}
