package weftinit

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// tree is all that descends from one process: see the package's doc on how it is known.
type tree struct {
	root int    // pid of its first process
	tag  uint32 // group id that all of it has; 0: there are no tags here
	all  bool   // everything in this process-id namespace but this program
}

// member is a live process of a tree, pinned by a pidfd, so that no signal hits another that got its pid.
type member struct {
	pid   int
	pidfd *os.File // nil where the kernel has none
}

func (m member) signal(sig unix.Signal) {
	if m.pidfd == nil {
		_ = unix.Kill(m.pid, sig)
		return
	}
	if raw, err := m.pidfd.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
}

// gone waits until the process has ended, at most until the deadline.
func (m member) gone(deadline time.Time) {
	if m.pidfd == nil {
		time.Sleep(min(time.Until(deadline), time.Millisecond)) // nothing to wait on; the caller looks again
		return
	}
	raw, err := m.pidfd.SyscallConn()
	if err != nil || m.pidfd.SetReadDeadline(deadline) != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// maxPinned bounds the descriptors that one sweep holds; the rest is for the next sweep.
const maxPinned = 512

// scan lists the processes of the tree, the live and the dead that nobody waited for yet. certain
// says that none vanished while it looked: one that did may have left a child that came too late to be
// listed. So may a dead one that was not seen dead before.
func (t tree) scan() (live, dead []processStat, certain bool) {
	procs, vanished := readProcesses()
	for _, p := range procs {
		switch {
		case p.pid == os.Getpid() || !t.has(p, procs):
		case p.zombie:
			dead = append(dead, p)
		default:
			live = append(live, p)
		}
	}
	return live, dead, vanished == 0
}

// empty reports that nothing of the tree lives. It looks twice, since even a certain look can miss a
// child whose number is lower than its parent's, after the numbers wrapped.
func (t tree) empty() bool {
	for range 2 {
		if live, dead, certain := t.scan(); len(live) > 0 || len(dead) > 0 || !certain {
			return false
		}
	}
	return true
}

// pin makes sure that a process is still the one that was scanned, and stays so.
func pin(p processStat) (member, bool) {
	m := member{pid: p.pid}
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return m, err != unix.ESRCH
	}
	m.pidfd = os.NewFile(uintptr(fd), "pidfd")
	if again, ok := readProcess(p.pid); !ok || again.zombie || again.start != p.start {
		_ = m.pidfd.Close()
		return m, false
	}
	return m, true
}

// members are the live processes of the tree, or the first of many.
func (t tree) members() []member {
	var out []member
	live, _, _ := t.scan()
	for _, p := range live {
		if m, ok := pin(p); ok {
			if out = append(out, m); len(out) == maxPinned {
				break
			}
		}
	}
	return out
}

func (t tree) has(p processStat, all map[int]processStat) bool {
	if t.all || t.tag != 0 && p.hasGroup(t.tag) {
		return true
	}
	// Without tags: by descent, and by the session that the root made.
	for depth := 0; t.tag == 0 && depth < 1024; depth++ {
		if p.pid == t.root || p.parent == t.root || p.session == t.root {
			return true
		}
		parent, ok := all[p.parent]
		if !ok || p.parent == os.Getpid() {
			return false
		}
		p = parent
	}
	return false
}

// signal sends sig to the whole tree once and says to how many.
func (t tree) signal(sig unix.Signal) int {
	n := 0
	live, _, _ := t.scan()
	for _, p := range live {
		if m, ok := pin(p); ok {
			m.signal(sig)
			release([]member{m})
			n++
		}
	}
	return n
}

// wait returns true when nothing of the tree is left, false at the deadline.
func (t tree) wait(deadline time.Time) bool {
	for {
		ms := t.members()
		if len(ms) == 0 && t.empty() {
			return true
		}
		breathe(ms)
		waitGone(ms, deadline)
		release(ms)
		if !time.Now().Before(deadline) {
			return t.empty()
		}
	}
}

// killFor bounds how long a kill goes on; only processes stuck in the kernel outlast it.
const killFor = 10 * time.Second

// kill ends the tree for certain: it sweeps until a sweep finds nothing.
func (t tree) kill() bool {
	if childless() {
		return true
	}
	deadline := time.Now().Add(killFor)
	for sweep := 0; time.Now().Before(deadline); sweep++ {
		if sweep >= freezeAfter {
			t.freeze(deadline)
		}
		ms := t.members()
		if len(ms) == 0 && t.empty() {
			return true
		}
		breathe(ms)
		for _, m := range ms {
			m.signal(unix.SIGKILL)
		}
		waitGone(ms, minTime(deadline, time.Now().Add(100*time.Millisecond)))
		release(ms)
	}
	live, _, _ := t.scan() // in a sandbox full of short-lived processes a look is hardly ever certain
	return len(live) == 0
}

// childless reports that this program has no child, dead or alive, and so that nothing is left of any tree: whoever
// outlives the first process of one is, or descends from, somebody who was handed to process 1. Usually that is so, and
// spares the looks through /proc.
func childless() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD
}

// breathe waits a little before the next look, when this one found nothing to wait for.
func breathe(ms []member) {
	if len(ms) == 0 {
		time.Sleep(time.Millisecond)
	}
}

const freezeAfter = 2 // sweeps

// freeze stops a tree that forks faster than it is killed. A process with a pending SIGSTOP can't fork any
// more, and one that is stopped keeps its place under the pids limit, which one that is killed would
// free for the next. So this converges; it returns when a sweep finds nobody new.
func (t tree) freeze(deadline time.Time) {
	type process struct {
		pid   int
		start uint64
	}
	seen := map[process]bool{}
	isNew := func(p processStat) bool {
		key := process{p.pid, p.start}
		before := seen[key]
		seen[key] = true
		return !before
	}
	for time.Now().Before(deadline) {
		live, dead, certain := t.scan()
		for _, p := range live {
			if !isNew(p) {
				continue
			}
			certain = false
			if m, ok := pin(p); ok {
				m.signal(unix.SIGSTOP)
				release([]member{m})
			}
		}
		for _, p := range dead {
			if isNew(p) {
				certain = false
			}
		}
		if certain {
			return
		}
	}
}

func waitGone(ms []member, deadline time.Time) {
	for _, m := range ms {
		if !time.Now().Before(deadline) {
			return
		}
		m.gone(deadline)
	}
}

func release(ms []member) {
	for _, m := range ms {
		if m.pidfd != nil {
			_ = m.pidfd.Close()
		}
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
