package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Period is the microseconds over which a quota of CPU time is counted.
const Period = 100_000

// Limits of a group.
type Limits struct {
	Memory int64 // bytes; there is no swap beyond it where the kernel can say so
	Quota  int64 // microseconds of CPU time in each Period
	PIDs   int64
}

// SetLimits changes the limits of a group in which processes run. They must use less than that already.
func (g Group) SetLimits(l Limits) error {
	if g.tree.unified {
		return g.write(
			setting{"memory", "memory.max", strconv.FormatInt(l.Memory, 10)},
			setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", l.Quota, Period)},
			setting{"pids", "pids.max", strconv.FormatInt(l.PIDs, 10)},
		)
	}
	memory, err := g.memoryV1(l.Memory)
	if err != nil {
		return fmt.Errorf("limits of %s: %w", g.name, err)
	}
	return g.write(append(memory,
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
