package weftinit

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	maxRunning = 1024 // processes that the node started and that run
	maxEnded   = 256  // records of ended ones that are kept without being asked for
	maxRecords = 4096 // of all, with those whose output was not acknowledged
)

// supervisor is all that weft-init knows: its processes, and the connection of the moment.
type supervisor struct {
	cfg      config
	reaper   *reaper
	tags     *tags
	budget   budget
	discards atomic.Int64
	dials    atomic.Int64
	sessions sessions
	show     show
	threads  sync.WaitGroup // until all threads are there

	mu        sync.Mutex
	processes map[string]*process
	order     []*process // ended ones, oldest first
	running   int
	closing   bool
}

func newSupervisor(cfg config) *supervisor {
	s := &supervisor{cfg: cfg, reaper: newReaper(), tags: newTags(), processes: map[string]*process{}}
	s.budget.limit.Store(int64(cfg.memory))
	s.sessions.changed = make(chan struct{})
	return s
}

// start runs a process, once per id. again says that the node asks for the second time, because the
// first answer may have been lost.
func (s *supervisor) start(spec wire.ProcessSpec, again bool) (*process, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if err := s.show.over(); err != nil && string(spec.Argv[0]) != wire.NoProgram {
		return nil, err
	}
	s.threads.Wait()
	p, mine, err := s.register(spec, again)
	if err != nil {
		return nil, err
	}
	if !mine {
		<-p.started
		return p, p.failure
	}
	p.failure = p.launch()
	if p.failure != nil {
		s.unregister(p)
	}
	close(p.started)
	return p, p.failure
}

func (s *supervisor) register(spec wire.ProcessSpec, again bool) (p *process, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.processes[spec.ID]; ok {
		if again {
			return p, false, nil
		}
		return nil, false, fault.New(fault.Conflict, "process %s exists already; attach to it, or use another id", spec.ID)
	}
	switch {
	case s.closing:
		return nil, false, fault.New(fault.Unavailable, "the sandbox is being stopped")
	case s.running >= maxRunning:
		return nil, false, fault.New(fault.Exhausted, "%d processes run in the sandbox already; end some", s.running)
	case len(s.processes) >= maxRecords:
		return nil, false, fault.New(fault.Exhausted, "%d processes are recorded; forget ended ones", len(s.processes))
	}
	p = newProcess(s, spec)
	s.processes[spec.ID] = p
	s.running++
	return p, true, nil
}

func (s *supervisor) unregister(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p.spec.ID)
	s.running--
}

// ended is told by a process that it is over; it makes room by dropping the oldest records that
// nobody needs.
func (s *supervisor) ended(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.order = append(s.order, p)
	for i := 0; i < len(s.order) && len(s.order) > maxEnded; {
		old := s.order[i]
		if !old.idle() {
			i++
			continue
		}
		s.drop(old)
	}
}

// forget drops the record of an ended process.
func (s *supervisor) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.processes[id]
	if !ok {
		return nil // it was forgotten before: asking twice is no error
	}
	if !p.isDone() {
		return fault.New(fault.Conflict, "process %s still runs; stop it first", id)
	}
	s.drop(p)
	return nil
}

func (s *supervisor) drop(p *process) {
	delete(s.processes, p.spec.ID)
	s.order = slices.DeleteFunc(s.order, func(o *process) bool { return o == p })
	p.free()
}

func (s *supervisor) find(id string) (*process, error) {
	s.mu.Lock()
	p, ok := s.processes[id]
	s.mu.Unlock()
	if !ok {
		return nil, fault.New(fault.NotFound, "no process %.40q in this sandbox: it never ran, or was forgotten", id)
	}
	<-p.started
	if p.failure != nil {
		return nil, fault.New(fault.NotFound, "process %s could not be started", id)
	}
	return p, nil
}

func (s *supervisor) list() []wire.ProcessInfo {
	s.mu.Lock()
	all := make([]*process, 0, len(s.processes))
	for _, p := range s.processes {
		all = append(all, p)
	}
	s.mu.Unlock()
	out := make([]wire.ProcessInfo, 0, len(all))
	for _, p := range all {
		<-p.started
		if p.failure == nil {
			out = append(out, p.info())
		}
	}
	slices.SortFunc(out, func(a, b wire.ProcessInfo) int { return a.Start.Compare(b.Start) })
	return out
}

// signal sends one signal.
func (p *process) signal(sig syscall.Signal, target wire.Target) error {
	if sig < 1 || sig > 64 {
		return fault.New(fault.Invalid, "signal %d is none of 1 to 64", int(sig))
	}
	over := fault.New(fault.Conflict, "process %s has ended", p.spec.ID)
	if p.pid == 0 {
		return over
	}
	var err error
	switch target {
	case wire.TargetProcess:
		err = p.init.reaper.signal(p.pid, sig)
	case wire.TargetGroup:
		// The group lives as long as a member does, and so long its number is not given away; it is
		// asked for through the leader while that is not reaped, else by sweeping the tree.
		if err = p.init.reaper.signal(p.pid, 0); err == nil {
			err = unix.Kill(-p.pid, sig)
		} else if p.tree.signal(sig) > 0 {
			err = nil
		}
	case wire.TargetTree, "":
		if p.tree.signal(sig) == 0 {
			err = unix.ESRCH
		}
	default:
		return fault.New(fault.Invalid, "target %.20q is none of process, group, tree", string(target))
	}
	switch err {
	case nil:
		return nil
	case unix.ESRCH:
		return over
	}
	return fault.Wrap(err, fault.Internal, "the signal could not be sent: %s", errText(err))
}

// stop ends the tree and returns when it is gone.
func (p *process) stop(grace time.Duration) {
	if p.pid == 0 {
		return
	}
	p.ending.begin(wire.ReasonKilled, max(grace, 0), p.tree)
	p.ending.wait()
}

// killAll ends everything but this process, and refuses new processes for as long as that takes.
func (s *supervisor) killAll(grace time.Duration) {
	s.mu.Lock()
	s.closing = true
	all := make([]*process, 0, len(s.processes))
	for _, p := range s.processes {
		all = append(all, p)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.closing = false
		s.mu.Unlock()
	}()
	for _, p := range all {
		<-p.started
		if p.failure == nil && p.pid != 0 && !p.isDone() {
			p.ending.mark(wire.ReasonKilled)
		}
	}
	everything := tree{root: os.Getpid(), all: os.Getpid() == 1}
	if grace > 0 {
		everything.signal(unix.SIGTERM)
		everything.signal(unix.SIGCONT)
		everything.wait(time.Now().Add(grace))
	}
	if os.Getpid() == 1 {
		// In one step for the kernel: no fork gets past it.
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	everything.kill()
}
