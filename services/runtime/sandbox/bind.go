package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
)

// FailAfterRecord is the failpoint between the record of a claim and everything that the claim changes.
var FailAfterRecord = failpoint.Register("sandbox.bind.after-record")

// answerTimeout is how long process 1 of a warm sandbox has for its answer, unless the configuration says otherwise.
// One that is well needs a millisecond; this much is for a machine that has ten times the work it can do.
const answerTimeout = 2 * time.Second

// Bind makes the blank sandbox m into spec's. Nothing of it is started: in some milliseconds it is what Create
// would have made. Conflict: somebody else has it, or spec's id is on the node already. Another error: it was
// not fit, and is destroyed; what of it could not be removed is known under spec's id. A process that
// dies in between leaves a sandbox that is spec's, and can be destroyed by that id, but must not be used.
func (n *Node) Bind(ctx context.Context, m *Sandbox, spec Spec) (*Sandbox, error) {
	level, spec, err := n.resolve(spec)
	if err != nil {
		return nil, err
	}
	if m.blank == nil {
		return nil, fault.Wrap(errTaken, fault.Conflict, "sandbox %s waits for nobody", m.id)
	}
	if !m.blank.mold.Fits(spec) {
		return nil, fault.New(fault.Invalid, "sandbox %s of pool %s can't become what is asked for", m.id, m.blank.mold.Pool.Name)
	}
	s := &Sandbox{body: m.body, spec: spec}
	if err := n.hold(s); err != nil {
		return nil, err
	}
	if err := n.claim(m.id, record{Spec: &spec}); err != nil {
		n.release(spec.ID)
		if errors.Is(err, errTaken) || errors.Is(err, os.ErrNotExist) {
			return nil, fault.Wrap(err, fault.Conflict, "sandbox %s was claimed by somebody else", m.id)
		}
		return nil, err
	}
	n.release(m.spec.ID)
	failpoint.Hit(FailAfterRecord)
	if err := s.bind(ctx, level, m.limits(level)); err != nil {
		return nil, errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// bind makes the change that the record speaks of, and makes sure that process 1 answers. The group has the limits had.
func (s *Sandbox) bind(ctx context.Context, level Level, had cgroup.Limits) error {
	ask, cancel := context.WithTimeout(ctx, cmp.Or(s.node.cfg.Answer, answerTimeout))
	defer cancel()
	limits := s.limits(level)
	answered := make(chan error, 1)
	go func() { answered <- s.channel.SetLimits(ask, limits.PIDs, limits.Memory) }()
	err := s.change(limits, had)
	if err != nil {
		cancel()
	}
	if answer := <-answered; err == nil && answer != nil {
		return fault.Wrap(answer, fault.Unavailable, "process 1 of the warm sandbox does not answer")
	}
	if err != nil {
		return fmt.Errorf("bind sandbox %s: %w", s.spec.ID, err)
	}
	return ctx.Err()
}

// change is the node's part of it.
func (s *Sandbox) change(limits, had cgroup.Limits) error {
	if limits != had {
		if err := s.group.SetLimits(limits); err != nil {
			return err
		}
	}
	if err := s.limitIO(); err != nil {
		return err
	}
	// In place: the sandbox has these very files mounted.
	for _, f := range etcFiles {
		if err := os.WriteFile(s.path("etc", f), []byte(s.spec.etc(f)), 0o444); err != nil {
			return err
		}
	}
	if err := s.setHostname(); err != nil {
		return err
	}
	if s.spec.Files {
		return nil // MountWorkspace's
	}
	return s.mountScratch()
}

// setHostname gives process 1's UTS namespace the sandbox's name. Where that is not what the payload
// sees (a runtime with a kernel of its own), /etc/hostname and the environment still say it.
func (s *Sandbox) setHostname() error {
	own, err := os.Stat("/proc/self/ns/uts")
	if err != nil {
		return err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/uts", s.init.PID))
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	defer f.Close()
	theirs, err := f.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(own, theirs) {
		return nil // never the node's own
	}
	if !s.init.Alive() { // checked with the namespace open: it is no other process's
		return fault.New(fault.Unavailable, "process 1 of sandbox %s has ended", s.spec.ID)
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, and with it the foreign namespace, ends with the goroutine.
		runtime.LockOSThread()
		err := unix.Setns(int(f.Fd()), unix.CLONE_NEWUTS)
		if err == nil {
			err = unix.Sethostname([]byte(s.spec.hostname()))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	return nil
}
