package weftinit

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/weftinit/binder"
)

// A sandbox whose kernel does not see what is mounted on a mount that it has already (gVisor holds the directory
// itself) has its workspace shown to it: one directory is bound to another. That takes CAP_SYS_ADMIN, which process 1
// gives up before it dials. So at its start it makes a process that keeps it, binds when it is told to, and ends; see
// package binder. No payload is started before that process has ended, whatever the node asks for.

// show is process 1's side of it. Its zero value is of a sandbox that sees everything by itself.
type show struct {
	mu    sync.Mutex
	by    *binder.Binder // nil: there is none
	ended <-chan ended
	done  bool
	err   error
}

// lateSpec is what is to be shown where; without from nothing is.
type lateSpec struct{ from, to string }

func (l *lateSpec) set(s string) error {
	var ok bool
	l.from, l.to, ok = strings.Cut(s, "=")
	if !ok || !strings.HasPrefix(l.from, "/") || !strings.HasPrefix(l.to, "/") {
		return errors.New("want directory=directory")
	}
	return nil
}

// makeBinder makes the process, as long as process 1 may do what it inherits.
func (s *supervisor) makeBinder(l lateSpec) error {
	if l.from == "" {
		return nil
	}
	end := make(chan ended, 1)
	_, err := s.reaper.child(end, func() (int, error) {
		b, err := binder.Start(l.from, l.to)
		if err != nil {
			return 0, err
		}
		s.show.by, s.show.ended = b, end
		return b.PID, nil
	})
	return err
}

// now has the process do its work, and returns when it has ended. Again changes nothing.
func (s *show) now() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by == nil:
		return fault.New(fault.Invalid, "this sandbox sees its workspace by itself")
	case s.done:
		return s.err
	}
	if err := s.by.Speak(); err != nil {
		return err
	}
	e := <-s.ended
	s.done = true
	if !e.status.Exited() || e.status.ExitStatus() != 0 {
		s.err = fault.Wrap(fmt.Errorf("status %#x: %w", int(e.status), unix.Errno(e.status.ExitStatus())), fault.Internal, "the sandbox can't be shown its workspace")
	}
	return errors.Join(s.err, s.by.Close())
}

// over refuses payload for as long as the process is there, and for ever where it failed.
func (s *show) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil || s.done {
		return s.err
	}
	return fault.New(fault.Conflict, "nothing runs in this sandbox before its workspace is there")
}
