package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// What containerd itself no longer knows: states that runc keeps, and shims that serve nothing. They
// are left when a daemon is killed between the start of a shim and the record of it.

func (e *Engine) runcRoot() string { return filepath.Join(e.cfg.RunDir, "runc") }

// RuntimeStates lists the containers of which runc has a state, whether containerd knows them or not.
func (e *Engine) RuntimeStates() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(e.runcRoot(), Namespace))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ids := make([]string, 0, len(entries))
	for _, d := range entries {
		ids = append(ids, d.Name())
	}
	return ids, err
}

// deleteState removes what runc still has of id after containerd has deleted it.
func (e *Engine) deleteState(ctx context.Context, id string) error {
	root := filepath.Join(e.runcRoot(), Namespace)
	if _, err := os.Stat(filepath.Join(root, id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, err := exec.CommandContext(ctx, e.cfg.Runc, "--root", root, "delete", "--force", id).CombinedOutput()
	if err != nil {
		return fmt.Errorf("runc delete %s: %w: %s", id, err, clip(strings.TrimSpace(string(out))))
	}
	return nil
}

// KillIdleShims ends the shims of a private daemon that listen at no address of any container, and
// gives their process ids.
func (e *Engine) KillIdleShims(ctx context.Context) ([]int, error) {
	used, err := e.shimAddresses()
	if err != nil {
		return nil, err
	}
	shims, err := e.shims()
	if err != nil {
		return nil, err
	}
	sockets, err := unixSockets()
	if err != nil {
		return nil, err
	}
	var killed []int
	var errs []error
	for _, p := range shims {
		listens := listenAddresses(p.PID, sockets, filepath.Join(e.cfg.RunDir, "shims"))
		if len(listens) == 0 || slices.ContainsFunc(listens, func(a string) bool { return used[a] }) {
			continue // it has not begun to listen, or is in use
		}
		errs = append(errs, p.Signal(syscall.SIGKILL))
		wait, cancel := call(ctx, callTimeout)
		errs = append(errs, p.Wait(wait))
		cancel()
		for _, a := range listens {
			errs = append(errs, ignoreMissing(os.Remove(a)))
		}
		killed = append(killed, p.PID)
	}
	return killed, errors.Join(append(errs, e.removeStaleSockets(sockets))...)
}

// staleAfter is how old the socket file of a shim that has ended must be before it is removed; a
// younger one may be about to be replaced.
const staleAfter = time.Minute

// removeStaleSockets deletes the socket files at which nobody listens: shims leave theirs.
func (e *Engine) removeStaleSockets(sockets map[string]string) error {
	dir := filepath.Join(e.cfg.RunDir, "shims")
	files, err := os.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	listening := map[string]bool{}
	for _, path := range sockets {
		listening[path] = true
	}
	var errs []error
	for _, f := range files {
		st, err := f.Info()
		path := filepath.Join(dir, f.Name())
		if err == nil && !listening[path] && time.Since(st.ModTime()) > staleAfter {
			errs = append(errs, ignoreMissing(os.Remove(path)))
		}
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// shimAddresses are the sockets at which containerd reaches the shims of its containers.
func (e *Engine) shimAddresses() (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(e.cfg.RunDir, "state", "io.containerd.runtime.v2.task", Namespace, "*", "bootstrap.json"))
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var boot struct {
			Address string `json:"address"`
		}
		if err == nil {
			err = json.Unmarshal(b, &boot)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		used[strings.TrimPrefix(boot.Address, "unix://")] = true
	}
	return used, nil
}

// shims lists the shim processes that belong to this daemon's socket.
func (e *Engine) shims() ([]proc.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var shims []proc.Process
	for _, d := range entries {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		at := slices.Index(args, "-address")
		if filepath.Base(args[0]) != filepath.Base(e.cfg.Shim) || at < 0 || at+1 >= len(args) || args[at+1] != e.socket {
			continue
		}
		if p, err := proc.Identify(pid); err == nil {
			shims = append(shims, p)
		}
	}
	return shims, nil
}

// unixSockets maps the inode of each listening unix socket of this network namespace to its path.
func unixSockets() (map[string]string, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	paths := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		if p := strings.Fields(lines.Text()); len(p) == 8 {
			paths[p[6]] = p[7]
		}
	}
	return paths, lines.Err()
}

// listenAddresses are the paths below dir of the sockets that process pid has open.
func listenAddresses(pid int, sockets map[string]string, dir string) []string {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	var at []string
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(target, "socket:[")
		path := sockets[strings.TrimSuffix(inode, "]")]
		if ok && strings.HasPrefix(path, dir+"/") && !slices.Contains(at, path) {
			at = append(at, path)
		}
	}
	return at
}
