package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Period is the microseconds over which a quota of CPU time is counted.
const Period = 100_000

// Limits of a group.
type Limits struct {
	Memory int64 // bytes; there is no swap beyond it where the kernel can say so
	Quota  int64 // microseconds of CPU time in each Period
	PIDs   int64
	Weight int64 // of its CPU time on a busy machine, 1 to 10,000; 0: as it is
}

// SetLimits changes the limits of a group in which processes run. They must use less than that already.
func (g Group) SetLimits(l Limits) error {
	if g.tree.unified {
		return g.write(append(g.weight(l.Weight),
			setting{"memory", "memory.max", strconv.FormatInt(l.Memory, 10)},
			setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", l.Quota, Period)},
			setting{"pids", "pids.max", strconv.FormatInt(l.PIDs, 10)},
		)...)
	}
	memory, err := g.memoryV1(l.Memory)
	if err != nil {
		return fmt.Errorf("limits of %s: %w", g.name, err)
	}
	return g.write(append(append(memory, g.weight(l.Weight)...),
		setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(l.Quota, 10)},
		setting{"pids", "pids.max", strconv.FormatInt(l.PIDs, 10)},
	)...)
}

// setting is one file of a controller and what is written to it.
type setting struct{ controller, file, value string }

func (g Group) write(settings ...setting) error {
	for _, s := range settings {
		// Opened as it is: a group that is gone must not become a file.
		f, err := os.OpenFile(filepath.Join(g.dir(s.controller), s.file), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("limits of %s: %w", g.name, err)
		}
		_, err = f.WriteString(s.value)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("limits of %s: %s to %s: %w", g.name, s.value, s.file, err)
		}
	}
	return nil
}

// memoryV1 sets memory, and memory with swap to the same. The second may never be below the first, so
// which comes first depends on the direction.
func (g Group) memoryV1(bytes int64) ([]setting, error) {
	value := strconv.FormatInt(bytes, 10)
	set := []setting{{"memory", "memory.limit_in_bytes", value}}
	if !g.tree.SwapLimited() {
		return set, nil
	}
	now, err := readInt(filepath.Join(g.dir("memory"), "memory.limit_in_bytes"))
	if err != nil {
		return nil, err
	}
	swap := setting{"memory", "memory.memsw.limit_in_bytes", value}
	if bytes > now {
		return append([]setting{swap}, set...), nil
	}
	return append(set, swap), nil
}

// Limits reads them back.
func (g Group) Limits() (Limits, error) {
	num := func(controller, file string) (int64, error) {
		b, err := os.ReadFile(filepath.Join(g.dir(controller), file))
		if err != nil {
			return 0, err
		}
		f := strings.Fields(string(b))
		if len(f) == 0 {
			return 0, fmt.Errorf("%s is empty", file)
		}
		return strconv.ParseInt(f[0], 10, 64)
	}
	memory, cpu := "memory.limit_in_bytes", "cpu.cfs_quota_us"
	if g.tree.unified {
		memory, cpu = "memory.max", "cpu.max"
	}
	var l Limits
	var errs [3]error
	l.Memory, errs[0] = num("memory", memory)
	l.Quota, errs[1] = num("cpu", cpu)
	l.PIDs, errs[2] = num("pids", "pids.max")
	if weight, err := num("cpu", g.weightFile()); err == nil {
		l.Weight = weight
		if !g.tree.unified {
			l.Weight = (weight*100 + 1023) / 1024
		}
	}
	return l, errors.Join(errs[:]...)
}
