package weftinit

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ended is what wait4 says of a child.
type ended struct {
	status unix.WaitStatus
	usage  unix.Rusage
	at     time.Time
}

// reaper is the only one in this program that waits for children. os/exec would compete with it for
// the same statuses, so it is not used anywhere: whatever is forked is forked by fork.
type reaper struct {
	mu       sync.Mutex // held while forking, so that no status arrives before its owner is known
	owners   map[int]chan<- ended
	forked   chan struct{} // wakes run after a time without any child
	oomScore *os.File      // /proc/self/oom_score_adj
	ownScore []byte        // what it said at the start: root inside may write it
}

// payloadOOMScore makes the kernel end payload before process 1, whose end would be that of all.
const payloadOOMScore = "500"

func newReaper() *reaper {
	r := &reaper{owners: map[int]chan<- ended{}, forked: make(chan struct{}, 1)}
	if f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0); err == nil {
		buf := make([]byte, 16)
		if n, _ := f.ReadAt(buf, 0); n > 0 {
			r.oomScore, r.ownScore = f, buf[:n]
		}
	}
	return r
}

// fork starts a child; owner, which must have room for one, gets its end.
func (r *reaper) fork(path string, argv []string, attr *syscall.ProcAttr, owner chan<- ended) (int, error) {
	return r.child(owner, func() (int, error) {
		defer r.raiseOOMScore()()
		return syscall.ForkExec(path, argv, attr)
	})
}

// child has begin make a child; owner gets its end.
func (r *reaper) child(owner chan<- ended, begin func() (int, error)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := begin()
	if err != nil {
		return 0, err
	}
	r.owners[pid] = owner
	select {
	case r.forked <- struct{}{}:
	default:
	}
	return pid, nil
}

// raiseOOMScore sets the score that a child inherits. A process may raise its own and lower it again
// to where it was.
func (r *reaper) raiseOOMScore() (restore func()) {
	if r.oomScore == nil {
		return func() {}
	}
	if _, err := r.oomScore.WriteAt([]byte(payloadOOMScore), 0); err != nil {
		return func() {}
	}
	return func() { _, _ = r.oomScore.WriteAt(r.ownScore, 0) }
}

// signal sends to a child that was not reaped yet; its pid can't be another's meanwhile.
func (r *reaper) signal(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.owners[pid]; !ok {
		return unix.ESRCH
	}
	return unix.Kill(pid, sig)
}

// looked is how often it is looked for orphans while we have no child: one can only come then of a process that was put into the
// sandbox from outside.
const looked = time.Minute

// run reaps for ever: children of ours, whose owners get their status, and orphans. The signal that tells of a child's end is
// given back to the kernel, which drops it: wait4 hears of the end without it, and it would wake two threads more.
func (r *reaper) run() {
	_ = setAction(syscall.SIGCHLD, sigDefault)
	for {
		var e ended
		pid, err := unix.Wait4(-1, &e.status, 0, &e.usage)
		switch {
		case errors.Is(err, unix.ECHILD):
			select {
			case <-r.forked:
			case <-time.After(looked):
			}
			continue
		case err != nil: // EINTR
			continue
		}
		e.at = time.Now()
		r.mu.Lock()
		owner := r.owners[pid]
		delete(r.owners, pid)
		r.mu.Unlock()
		if owner != nil {
			owner <- e
		}
	}
}
