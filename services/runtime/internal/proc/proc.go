// Package proc names processes beyond doubt and waits for the end of any of them, child or not.
package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process names one process: a pid is used again, a pid with its start time in one boot is not.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`
}

// Found is a process as it is found, with who its parent is now.
type Found struct {
	Process
	Parent int
}

// boot is the identifier of this boot of the machine, which can't change while we run.
var boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// Identify reads who pid is now. A zombie counts as gone: os.ErrNotExist.
func Identify(pid int) (Found, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = os.ErrNotExist // it ended between open and read
	}
	if err != nil {
		return Found{}, err
	}
	// The command's name may hold spaces and brackets; what follows the last bracket is plain.
	i := strings.LastIndexByte(string(stat), ')')
	f := strings.Fields(string(stat)[i+1:])
	if i < 0 || len(f) < 20 {
		return Found{}, fmt.Errorf("stat of process %d is not in the known form", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return Found{}, fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return Found{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return Found{}, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	b, err := boot()
	return Found{Process{PID: pid, Start: start, Boot: b}, parent}, err
}

// Alive reports whether exactly this process still runs.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := Identify(p.PID)
	return err == nil && now.Process == p
}

// Signal sends sig to exactly this process; one that is gone is no error.
func (p Process) Signal(sig syscall.Signal) error {
	fd, err := p.open()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// open gives a descriptor that stands for exactly this process, or os.ErrNotExist when it is gone.
func (p Process) open() (int, error) {
	if p.PID <= 0 {
		return -1, os.ErrNotExist
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return -1, os.ErrNotExist
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// Checked after the descriptor is open: from now on the pid can't become somebody else's unseen.
	if !p.Alive() {
		unix.Close(fd)
		return -1, os.ErrNotExist
	}
	return fd, nil
}

// Wait returns nil when p has ended, or ctx's error. It costs a descriptor, and no thread.
func (p Process) Wait(ctx context.Context) error {
	fd, err := p.open()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd %d", p.PID))
	defer f.Close()
	// A deadline in the past wakes the read below.
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var poll error
	err = c.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		var n int
		for n, poll = unix.Poll(fds, 0); errors.Is(poll, unix.EINTR); n, poll = unix.Poll(fds, 0) {
		}
		return n > 0 || poll != nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, poll)
}

// Read reads a process from the file that Write made.
func Read(path string) (Process, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Process{}, err
	}
	var p Process
	if err := json.Unmarshal(b, &p); err != nil {
		return Process{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Write keeps p in a file, whole or not at all.
func Write(path string, p Process) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".pid-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
