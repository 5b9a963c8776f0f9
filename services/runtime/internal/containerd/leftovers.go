package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// What containerd itself no longer knows: states that runc keeps, and shims that serve nothing. They
// are left when a daemon is killed between the start of a shim and the record of it.

// tasks is the directory of a daemon's tasks, below its state and below its root. hidden comes before the names of those
// that it removes.
const (
	tasks  = "io.containerd.runtime.v2.task"
	hidden = "."
)

func (e *Engine) runcRoot() string { return filepath.Join(e.cfg.RunDir, "runc") }

// RuntimeStates lists the containers of which runc or runsc has a state, whether containerd knows them or not.
func (e *Engine) RuntimeStates() ([]string, error) {
	files, err := e.runscFiles()
	if err != nil {
		return nil, err
	}
	ids := slices.Collect(maps.Keys(files))
	entries, err := os.ReadDir(filepath.Join(e.runcRoot(), Namespace))
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	for _, d := range entries {
		ids = append(ids, d.Name())
	}
	return ids, err
}

// deleteState removes what a runtime still has of id after containerd has deleted it.
func (e *Engine) deleteState(ctx context.Context, id string) error {
	if err := e.deleteRunscState(ctx, id); err != nil {
		return err
	}
	root := filepath.Join(e.runcRoot(), Namespace)
	if _, err := os.Stat(filepath.Join(root, id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if out, err := program(ctx, e.cfg.Runc, "--root", root, "delete", "--force", id); err != nil {
		return fmt.Errorf("runc delete %s: %w: %s", id, err, out)
	}
	return nil
}

// program runs one of the machine's and gives the beginning of what it prints.
func program(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	return clip(strings.TrimSpace(string(out))), err
}

// deleteBundle removes what a private daemon still has of a task that it has deleted: one whose deletion
// was asked for by a process that ended meanwhile loses its directory only when the daemon starts next. A daemon hides
// a directory before it removes it; one that it had hidden when it was killed it never looks at again.
func (e *Engine) deleteBundle(id string) error {
	if e.cfg.Socket != "" {
		return nil
	}
	for _, state := range []string{filepath.Join(e.cfg.RunDir, "state"), filepath.Join(e.cfg.Dir, "root")} {
		dir := filepath.Join(state, tasks, Namespace, id)
		if err := unix.Unmount(filepath.Join(dir, "rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted, not there
			return fmt.Errorf("unmount the root of task %s: %w", id, err)
		}
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(filepath.Join(filepath.Dir(dir), hidden+id))); err != nil {
			return fmt.Errorf("remove the directory of task %s: %w", id, err)
		}
	}
	return nil
}

// KillIdleShims ends the shims of a private daemon that no container runs under, gives their process
// ids, and removes the socket files at which nobody listens. No container is created meanwhile.
func (e *Engine) KillIdleShims(ctx context.Context) ([]int, error) {
	e.creating.Lock()
	defer e.creating.Unlock()
	idle, err := e.idleShims()
	if err != nil {
		return nil, err
	}
	var killed []int
	var errs []error
	for _, p := range idle {
		wait, cancel := call(ctx, callTimeout)
		if err := errors.Join(p.Signal(syscall.SIGKILL), p.Wait(wait)); err != nil {
			errs = append(errs, err)
		} else {
			killed = append(killed, p.PID)
		}
		cancel()
	}
	return killed, errors.Join(append(errs, e.removeStaleSockets())...)
}

// idleShims lists the shims of this daemon's socket that have no child: process 1 of a container is
// a child of its shim, and so is gVisor's sentry. A shim of another runtime may keep its container in itself:
// it is idle when the task that it was started for is gone.
func (e *Engine) idleShims() ([]proc.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var shims []proc.Process
	parents := map[int]bool{}
	own := []string{filepath.Base(e.cfg.Shim), shimOf(Runsc)}
	for _, d := range entries {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		p, err := proc.Identify(pid)
		if err != nil {
			continue // ended meanwhile
		}
		parents[p.Parent] = true
		line, err := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		name := filepath.Base(args[0])
		ours := strings.HasPrefix(name, "containerd-shim-") && flagOf(args, "-address") == e.socket
		if !ours || slices.Contains(args, "start") || slices.Contains(args, "delete") {
			continue
		}
		if id := flagOf(args, "-id"); slices.Contains(own, name) || !e.hasBundle(id) {
			shims = append(shims, p.Process)
		}
	}
	return slices.DeleteFunc(shims, func(p proc.Process) bool { return parents[p.PID] || e.isAwaited(p) }), nil
}

// flagOf is the value of a flag in a command line.
func flagOf(args []string, name string) string {
	if at := slices.Index(args, name); at >= 0 && at+1 < len(args) {
		return args[at+1]
	}
	return ""
}

// hasBundle says whether a private daemon has a directory of task id.
func (e *Engine) hasBundle(id string) bool {
	_, err := os.Stat(filepath.Join(e.cfg.RunDir, "state", tasks, Namespace, id))
	return err == nil
}

// removeStaleSockets deletes the socket files that shims left behind.
func (e *Engine) removeStaleSockets() error {
	dir := filepath.Join(e.cfg.RunDir, "shims")
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		c, err := net.Dial("unix", path)
		if err == nil {
			errs = append(errs, c.Close())
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
