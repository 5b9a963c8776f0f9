package weftinit

import (
	"bytes"
	"os"
	"strconv"
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

// members lists the live processes of the tree.
func (t tree) members() []member {
	procs := readProcesses()
	var out []member
	for _, p := range procs {
		if p.zombie || p.pid == os.Getpid() || !t.has(p, procs) {
			continue
		}
		m := member{pid: p.pid}
		if fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK); err == nil {
			m.pidfd = os.NewFile(uintptr(fd), "pidfd")
			// Whoever has the pid now is pinned; it must still be of this tree.
			if again, ok := readProcess(p.pid); !ok || again.zombie || again.start != p.start {
				_ = m.pidfd.Close()
				continue
			}
		} else if err == unix.ESRCH {
			continue
		}
		if out = append(out, m); len(out) == maxPinned {
			break
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

// signal sends sig to the whole tree once.
func (t tree) signal(sig unix.Signal) int {
	ms := t.members()
	for _, m := range ms {
		m.signal(sig)
	}
	release(ms)
	return len(ms)
}

// wait returns true when nothing of the tree is left, false at the deadline.
func (t tree) wait(deadline time.Time) bool {
	for {
		ms := t.members()
		if len(ms) == 0 {
			return true
		}
		waitGone(ms, deadline)
		release(ms)
		if !time.Now().Before(deadline) {
			return len(t.members()) == 0
		}
	}
}

// killFor bounds how long a kill goes on; only processes stuck in the kernel outlast it.
const killFor = 10 * time.Second

// kill ends the tree for certain: it sweeps until a sweep finds nothing. What forks faster than it is
// killed is first stopped as a whole: stopped processes keep their places under the pids limit,
// killed ones would make room.
func (t tree) kill() bool {
	deadline := time.Now().Add(killFor)
	for sweep := 0; time.Now().Before(deadline); sweep++ {
		ms := t.members()
		if len(ms) == 0 {
			return true
		}
		stop := (sweep >= 3 || len(ms) > 64) && sweep < 40
		for _, m := range ms {
			if stop {
				m.signal(unix.SIGSTOP)
			}
		}
		if stop {
			release(ms)
			if !t.allStopped() {
				continue
			}
			ms = t.members()
		}
		for _, m := range ms {
			m.signal(unix.SIGKILL)
		}
		waitGone(ms, minTime(deadline, time.Now().Add(100*time.Millisecond)))
		release(ms)
	}
	return len(t.members()) == 0
}

func (t tree) allStopped() bool {
	procs := readProcesses()
	for _, p := range procs {
		if !p.zombie && !p.stopped && p.pid != os.Getpid() && t.has(p, procs) {
			return false
		}
	}
	return true
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

// processStat is what a sweep needs to know of a process.
type processStat struct {
	pid, parent, session int
	zombie, stopped      bool
	start                uint64 // in ticks since boot: with the pid it names one process for good
	groups               []byte // as in /proc: ids with spaces between and after
	userTicks, sysTicks  uint64
	rssPages             int64
}

func (p processStat) hasGroup(gid uint32) bool {
	want := strconv.AppendUint(nil, uint64(gid), 10)
	for g := range bytes.FieldsSeq(p.groups) {
		if bytes.Equal(g, want) {
			return true
		}
	}
	return false
}

// readProcesses reads all of /proc. What ends meanwhile is left out.
func readProcesses() (out map[int]processStat) {
	block(func() { out = scanProcesses() })
	return out
}

func scanProcesses() map[int]processStat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	out := make(map[int]processStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			out[pid] = p
		}
	}
	return out
}

func readProcess(pid int) (p processStat, ok bool) {
	base := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(base + "/stat")
	if err != nil {
		return p, false
	}
	// The name in parentheses may hold anything; what follows the last one does not.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 22 {
		return p, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	p = processStat{
		pid: pid, parent: num(1), session: num(3),
		zombie:    f[0][0] == 'Z' || f[0][0] == 'X',
		stopped:   f[0][0] == 'T' || f[0][0] == 't',
		userTicks: uint64(num(11)), sysTicks: uint64(num(12)),
		start: uint64(num(19)), rssPages: int64(num(21)),
	}
	status, err := os.ReadFile(base + "/status")
	if err != nil {
		return p, false
	}
	if _, rest, ok := bytes.Cut(status, []byte("\nGroups:")); ok {
		p.groups, _, _ = bytes.Cut(rest, []byte("\n"))
	}
	return p, true
}
