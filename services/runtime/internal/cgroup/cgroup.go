// Package cgroup reads, freezes, kills and removes the control groups of sandboxes, on version 1,
// on version 2 and on machines that have both mounted. It goes to the kernel without containerd, so
// that a node can still freeze and kill what runs on it while containerd is down.
package cgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Tree is the group under which all groups of one owner are, in every hierarchy of the machine.
type Tree struct {
	parent  string            // absolute within each hierarchy, as /weft/<owner>
	unified bool              // version 2 has the controllers
	mounts  map[string]string // version 1: controller → mount point
	v2      string            // where version 2 is mounted, with controllers or without
	all     []string          // every mount point, each once
	mover   mover
}

// Open finds the hierarchies of this machine. parent is absolute within each.
func Open(parent string) (*Tree, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &Tree{parent: filepath.Clean("/" + parent), mounts: map[string]string{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fstype, point, options := mountOf(lines.Text())
		switch fstype {
		case "cgroup2":
			t.v2 = point
		case "cgroup":
			for _, c := range strings.Split(options, ",") {
				if _, seen := t.mounts[c]; !seen {
					t.mounts[c] = point
				}
			}
			t.all = append(t.all, point)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if _, v1 := t.mounts["pids"]; !v1 {
		if t.v2 == "" {
			return nil, errors.New("no cgroups are mounted on this machine; mount cgroup2 at /sys/fs/cgroup")
		}
		t.unified, t.mounts, t.all = true, nil, []string{t.v2}
		return t, nil
	}
	if t.v2 != "" { // hybrid: version 2 has no controllers, but runc may make a group there
		t.all = append(t.all, t.v2)
	}
	for _, c := range []string{"memory", "cpu", "pids", "freezer"} {
		if t.mounts[c] == "" {
			return nil, fmt.Errorf("the cgroup controller %s is not mounted on this machine", c)
		}
	}
	return t, nil
}

// mountOf gives what matters of a line of mountinfo.
func mountOf(line string) (fstype, point, options string) {
	before, after, ok := strings.Cut(line, " - ")
	b, a := strings.Fields(before), strings.Fields(after)
	if !ok || len(b) < 5 || len(a) < 3 {
		return "", "", ""
	}
	return a[0], b[4], a[2]
}

// Group is one sandbox's group.
type Group struct {
	tree *Tree
	name string
}

// Group names one; it need not exist.
func (t *Tree) Group(name string) Group { return Group{t, name} }

// Path is what a runtime takes as the group's path.
func (g Group) Path() string { return filepath.Join(g.tree.parent, g.name) }

// SwapLimited reports whether the kernel can limit memory and swap together.
func (t *Tree) SwapLimited() bool {
	file := filepath.Join(t.mounts["memory"], "memory.memsw.limit_in_bytes")
	if t.unified {
		return true // memory.swap.max; runc leaves it out where there is no swap
	}
	_, err := os.Stat(file)
	return err == nil
}

// List gives the names of all groups of the tree in any hierarchy, sorted.
func (t *Tree) List() ([]string, error) {
	var names []string
	for _, m := range t.all {
		entries, err := os.ReadDir(filepath.Join(m, t.parent))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Prune removes the tree itself, and what is above it of ours, where nothing is in it any more.
func (t *Tree) Prune() {
	for _, m := range t.all {
		for p := t.parent; p != "/"; p = filepath.Dir(p) {
			if os.Remove(filepath.Join(m, p)) != nil {
				break
			}
		}
	}
}

// dir is the group's directory where controller is.
func (g Group) dir(controller string) string {
	if g.tree.unified {
		return filepath.Join(g.tree.all[0], g.Path())
	}
	return filepath.Join(g.tree.mounts[controller], g.Path())
}

// Usage is what the group uses and has used.
type Usage struct {
	CPU      time.Duration
	Memory   int64 // bytes now
	Peak     int64 // bytes at most so far; 0 where the kernel does not tell
	PIDs     int   // processes and threads
	OOMKills int   // processes that the kernel killed for want of memory
	Refused  int   // processes and threads that the limit kept from being made
}

// Usage reads it. A group that is gone gives fs.ErrNotExist.
func (g Group) Usage() (Usage, error) {
	var u Usage
	var errs []error
	num := func(controller, file string) int64 {
		v, err := readInt(filepath.Join(g.dir(controller), file))
		errs = append(errs, err)
		return v
	}
	if g.tree.unified {
		u.CPU = time.Duration(g.field("cpu", "cpu.stat", "usage_usec")) * time.Microsecond
		u.Memory, u.PIDs = num("memory", "memory.current"), int(num("pids", "pids.current"))
		u.Peak, _ = readInt(filepath.Join(g.dir("memory"), "memory.peak")) // since Linux 5.19
		u.OOMKills = int(g.field("memory", "memory.events", "oom_kill"))
		u.Refused = int(g.field("pids", "pids.events", "max"))
		return u, errors.Join(errs...)
	}
	u.CPU = time.Duration(num("cpuacct", "cpuacct.usage"))
	u.Memory, u.Peak = num("memory", "memory.usage_in_bytes"), num("memory", "memory.max_usage_in_bytes")
	u.PIDs = int(num("pids", "pids.current"))
	u.OOMKills = int(g.field("memory", "memory.oom_control", "oom_kill"))
	u.Refused = int(g.field("pids", "pids.events", "max"))
	return u, errors.Join(errs...)
}

// field is one "name value" line of a flat file; 0 if it is not there.
func (g Group) field(controller, file, name string) int64 {
	b, err := os.ReadFile(filepath.Join(g.dir(controller), file))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); ok && string(k) == name {
			n, _ := strconv.ParseInt(string(v), 10, 64)
			return n
		}
	}
	return 0
}

func readInt(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
}

// Freeze stops every process of the group where it is, and returns when all have stopped.
func (g Group) Freeze(ctx context.Context) error { return g.setFrozen(ctx, true) }

// Thaw lets them go on.
func (g Group) Thaw(ctx context.Context) error { return g.setFrozen(ctx, false) }

func (g Group) setFrozen(ctx context.Context, frozen bool) error {
	file, value := filepath.Join(g.dir("freezer"), "freezer.state"), "THAWED"
	if frozen {
		value = "FROZEN"
	}
	if g.tree.unified {
		file, value = filepath.Join(g.dir("freezer"), "cgroup.freeze"), "0"
		if frozen {
			value = "1"
		}
	}
	for {
		// On version 1 a process that forks at that moment leaves the state at FREEZING; writing
		// again takes it up.
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("freezer of %s: %w", g.name, err)
		}
		now, err := g.Frozen()
		if err != nil || now == frozen {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("freezer of %s: %w", g.name, err)
		}
	}
}

// Frozen reports whether all of the group's processes are stopped.
func (g Group) Frozen() (bool, error) {
	if g.tree.unified {
		return g.field("freezer", "cgroup.events", "frozen") == 1, nil
	}
	b, err := os.ReadFile(filepath.Join(g.dir("freezer"), "freezer.state"))
	return string(bytes.TrimSpace(b)) == "FROZEN", err
}

// Kill ends every process of the group, frozen or not, and returns when none is left. A group that
// does not exist has none.
func (g Group) Kill(ctx context.Context) error {
	for {
		pids, err := g.pids()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of %s: %w", pid, g.name, err)
			}
		}
		// The signal waits in a frozen process, so nothing of it runs between here and its end.
		if err := g.Thaw(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%d processes of %s do not end: %w", len(pids), g.name, err)
		}
	}
}

// pids are those of the group and of all below it.
func (g Group) pids() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(g.dir("pids"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return ignoreGone(err)
		}
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// Remove deletes the group, and what is below it, in every hierarchy. Nothing may run in it. A group
// that is not there is no error.
func (g Group) Remove(ctx context.Context) error {
	for _, m := range g.tree.all {
		for {
			err := removeTree(filepath.Join(m, g.Path()))
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				return err
			}
			// The kernel takes a moment to forget processes that have just ended.
			if pause(ctx) != nil {
				return fmt.Errorf("remove group %s: %w", g.name, err)
			}
		}
	}
	return nil
}

// removeTree deletes groups from the leaves up; the files in them can't be deleted and go along.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return ignoreGone(syscall.Rmdir(dir))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// pause waits a moment, or for the end of ctx.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}
