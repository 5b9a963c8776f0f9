package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Benchmark is one thing that is measured.
type Benchmark struct {
	Name string
	What string
	Run  func(ctx context.Context, e *Env) ([]Result, error)
}

// benchmarks in the order in which they run. Those that need a whole mesh share one.
var benchmarks = slices.Concat(busBenchmarks, meshBenchmarks, sandboxBenchmarks, serviceBenchmarks, sizeBenchmarks)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("ONLY"), os.Getenv("JSON") != ""); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, asJSON bool) error {
	names, err := pick(only)
	if err != nil {
		return err
	}
	e, err := newEnv()
	if err != nil {
		return err
	}
	defer e.close()
	if !asJSON {
		fmt.Printf("%s/%s, %d CPUs, %s; medians, times as said; × is the ratio to what stands beside it\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	}
	failed := 0
	for _, b := range benchmarks {
		if !names[b.Name] {
			continue
		}
		fmt.Fprintf(os.Stderr, "… %s: %s\n", b.Name, b.What)
		bctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		rs, err := b.Run(bctx, e)
		cancel()
		if err != nil {
			failed++
			fmt.Fprintf(os.Stderr, "  %s failed: %v\n", b.Name, err)
			continue
		}
		for _, r := range rs {
			if err := r.print(os.Stdout, asJSON); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d benchmarks failed", failed)
	}
	return nil
}

// pick reads ONLY. Nothing is all.
func pick(only string) (map[string]bool, error) {
	out := map[string]bool{}
	var all []string
	for _, b := range benchmarks {
		all = append(all, b.Name)
		if only == "" {
			out[b.Name] = true
		}
	}
	if only == "" {
		return out, nil
	}
	for _, n := range strings.Split(only, ",") {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("there is no benchmark %q; choose from %s", n, strings.Join(all, ", "))
		}
		out[n] = true
	}
	return out, nil
}

// Result is one measured thing, with what was measured beside it.
type Result struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Median  float64   `json:"median"`
	P95     float64   `json:"p95"`
	P99     float64   `json:"p99"`
	N       int       `json:"n"`
	Aim     string    `json:"aim,omitempty"`
	Met     *bool     `json:"met,omitempty"` // whether it was; nothing where the aim is for a reader to judge
	Against []Against `json:"against,omitempty"`
}

// Against is something measured in the same run; Ratio is Result's median over its.
type Against struct {
	Name   string  `json:"name"`
	Median float64 `json:"median"`
	Ratio  float64 `json:"ratio"`
}

// newResult takes samples in unit.
func newResult(name, unit string, samples []float64) Result {
	s := slices.Sorted(slices.Values(samples))
	return Result{Name: name, Unit: unit, N: len(s), Median: quantile(s, 0.5), P95: quantile(s, 0.95), P99: quantile(s, 0.99)}
}

// beside adds what was measured beside it.
func (r Result) beside(name string, samples []float64) Result {
	m := quantile(slices.Sorted(slices.Values(samples)), 0.5)
	a := Against{Name: name, Median: m}
	if m != 0 {
		a.Ratio = r.Median / m
	}
	r.Against = append(r.Against, a)
	return r
}

func (r Result) aim(s string) Result { r.Aim = s; return r }

// aimed adds an aim, and whether it was met.
func (r Result) aimed(s string, met bool) Result { r.Aim, r.Met = s, &met; return r }

// median and atLeast are aims for the median.
func (r Result) median(most float64) Result {
	return r.aimed(fmt.Sprintf("≤ %g", most), r.Median <= most)
}

func (r Result) atLeast(least float64) Result {
	return r.aimed(fmt.Sprintf("≥ %g", least), r.Median >= least)
}

// quick has fewer rounds of everything about sandboxes.
var quick = os.Getenv("QUICK") != ""

// rounds is n, or some fewer.
func rounds(n int) int {
	if quick {
		return max(1, n/5)
	}
	return n
}

// quantile of sorted samples, by the nearest rank.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted)-1) + 0.5)
	return sorted[i]
}

func (r Result) print(w *os.File, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	line := fmt.Sprintf("%-22s %10.3f %-7s p95 %10.3f  p99 %10.3f  n %-6d", r.Name, r.Median, r.Unit, r.P95, r.P99, r.N)
	if r.Aim != "" {
		line += "  aim " + r.Aim
		if r.Met != nil {
			line += map[bool]string{true: ": met", false: ": NOT MET"}[*r.Met]
		}
	}
	for _, a := range r.Against {
		line += fmt.Sprintf("\n    beside %-28s %10.3f %-7s ×%.2f", a.Name, a.Median, r.Unit, a.Ratio)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// each runs f n times after a few that don't count, and gives the milliseconds of every run. Where several
// are given, they take turns, so that a machine that changes its speed changes all of them.
func each(ctx context.Context, n int, fs ...func() error) ([][]float64, error) {
	out := make([][]float64, len(fs))
	for i := range n + warmups {
		for k, f := range fs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t := time.Now()
			if err := f(); err != nil {
				return nil, err
			}
			if i >= warmups {
				out[k] = append(out[k], float64(time.Since(t).Nanoseconds())/1e6)
			}
		}
	}
	return out, nil
}

const warmups = 3
