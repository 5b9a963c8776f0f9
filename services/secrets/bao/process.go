package bao

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
)

// identity is what makes a process this one and no later one with the same pid.
type identity struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after the boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`  // the kernel's id of the boot
}

// process is a live process, pinned by a pidfd, with a goroutine that waits for its end.
type process struct {
	pid   int
	fd    int           // pidfd: no signal can hit another process that got the pid
	dead  chan struct{} // closed at its end
	quit  *os.File      // closing it ends the watcher
	watch chan struct{} // closed when the watcher has returned
}

// identify reads the identity of a pid that is alive.
func identify(pid int) (identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, err
	}
	// The command's name stands in parentheses and may hold anything; what follows is fixed.
	_, rest, ok := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return identity{}, fmt.Errorf("process %d has an unreadable stat", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return identity{}, fmt.Errorf("process %d has ended", pid)
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return identity{pid, start, strings.TrimSpace(string(boot))}, err
}

// adopt pins the process with this identity. If the pid is another process by now, it is an error.
func adopt(id identity) (*process, error) {
	fd, err := unix.PidfdOpen(id.Pid, 0)
	if err != nil {
		return nil, err
	}
	// Checked after the pidfd was opened: from here on the pid can't change its owner unnoticed.
	now, err := identify(id.Pid)
	if err == nil && now != id {
		err = fmt.Errorf("pid %d is another process now", id.Pid)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	p := &process{pid: id.Pid, fd: fd, dead: make(chan struct{}), quit: w, watch: make(chan struct{})}
	go p.wait(r)
	return p, nil
}

// wait closes dead when the process ends, and reaps it if it is our child.
func (p *process) wait(quit *os.File) {
	defer close(p.watch)
	defer quit.Close()
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}, {Fd: int32(quit.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents != 0 {
			_ = unix.Waitid(unix.P_PIDFD, p.fd, nil, unix.WEXITED|unix.WNOHANG, nil)
			close(p.dead)
			return
		}
		if fds[1].Revents != 0 {
			return
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// release forgets the process and leaves it running.
func (p *process) release() {
	_ = p.quit.Close()
	<-p.watch
	_ = unix.Close(p.fd)
}

// end asks the process to end, then makes it.
func (p *process) end(ctx context.Context, patience time.Duration) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	_ = unix.PidfdSendSignal(p.fd, unix.SIGTERM, nil, 0)
	select {
	case <-p.dead:
		return nil
	case <-ctx.Done():
	case <-t.C:
	}
	_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
	select {
	case <-p.dead:
		return nil
	case <-time.After(5 * time.Second):
		return fault.New(fault.Unavailable, "OpenBao (pid %d) does not end", p.pid)
	}
}

// find gives the process that holds alive.lock: by the record, or where that is missing or of another
// process, by asking the socket for its owner.
func (s *Server) find(ctx context.Context) (*process, error) {
	var last error
	for {
		var id identity
		if b, err := os.ReadFile(s.path(processFile)); err == nil && json.Unmarshal(b, &id) == nil {
			p, err := adopt(id)
			if err == nil {
				return p, nil
			}
			last = err
		}
		id, err := s.owner()
		if err == nil {
			if err = s.remember(id); err != nil {
				return nil, err
			}
			return adopt(id)
		}
		last = errors.Join(last, err)
		// It may have been started an instant ago and not listen yet.
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(last, fault.Unavailable, "a process holds %s but does not answer at %s; end it (`fuser %s` names it) and start again",
				s.path(aliveFile), s.path(socketFile), s.path(aliveFile))
		case <-time.After(50 * time.Millisecond):
		}
		if alive, err := lock(s.path(aliveFile)); err == nil {
			_ = alive.Close()
			return nil, fault.New(fault.Unavailable, "OpenBao ended while it was looked for; try again")
		}
	}
}

// owner asks the kernel who listens on the socket. The directory is ours alone, so it is the server.
func (s *Server) owner() (identity, error) {
	c, err := net.DialTimeout("unix", s.path(socketFile), time.Second)
	if err != nil {
		return identity{}, err
	}
	defer c.Close()
	rc, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return identity{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = rc.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return identity{}, err
	}
	return identify(int(cred.Pid))
}

func (s *Server) remember(id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(s.path(processFile), b)
}

var errLocked = errors.New("locked by another process")

// lock takes path exclusively, without waiting. The lock goes with the file's last descriptor.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}
