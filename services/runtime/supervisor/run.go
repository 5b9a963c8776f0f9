package supervisor

import (
	"context"
	"sync"
	"time"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Result is what Run collected.
type Result struct {
	Exit           Exit
	Stdout, Stderr []byte
	Truncated      bool // more than the limit was written; the rest was read and thrown away
}

// stopTimeout bounds how long Run sees to the end of a process that its caller gave up.
const stopTimeout = 15 * time.Second

// Run starts a process, gives it stdin (which may be nil), collects at most limit bytes of each
// output, waits for its end and forgets it. If ctx ends first the process's tree is killed.
func (s *Sandbox) Run(ctx context.Context, spec ProcessSpec, stdin []byte, limit int) (Result, error) {
	spec.Stdin = stdin != nil
	p, err := s.Start(ctx, spec)
	if err != nil {
		return Result{}, err
	}
	var input sync.WaitGroup
	if stdin != nil {
		input.Go(func() {
			// A process need not read all that it is given; that it ends then is for it to say.
			if p.WriteStdin(ctx, stdin) == nil {
				_ = p.CloseStdin(ctx)
			}
		})
	}
	res, err := p.collect(ctx, limit)
	if err != nil {
		s.abandon(ctx, p)
	} else {
		p.forgetSoon()
	}
	input.Wait()
	_ = p.Close()
	return res, err
}

func (p *Process) collect(ctx context.Context, limit int) (res Result, err error) {
	for {
		ev, err := p.Next(ctx)
		if err != nil {
			return res, err
		}
		if ev.Exit != nil {
			res.Exit = *ev.Exit
			return res, nil
		}
		into := &res.Stdout
		if ev.Stream == Stderr {
			into = &res.Stderr
		}
		room := max(0, limit-len(*into))
		res.Truncated = res.Truncated || len(ev.Data) > room || ev.Dropped > 0
		*into = append(*into, ev.Data[:min(room, len(ev.Data))]...)
		if p.info.Output == OutputLossless {
			p.Ack(p.next)
		}
	}
}

// abandon ends a process for which there is no time left; what it can't end in time stays listed.
func (s *Sandbox) abandon(ctx context.Context, p *Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if p.Stop(ctx, 0) == nil {
		if _, err := p.Wait(ctx); err == nil {
			_ = p.Forget(ctx)
		}
	}
}

// ForgetSoon is Forget of an ended process without waiting for it, and closes p. It reports whether it could
// be said; should it get lost after that, the record goes when there are too many.
func (p *Process) ForgetSoon() bool {
	defer p.Close()
	return p.forgetSoon()
}

// forgetSoon says on the stream that is there already that the record is not wanted. Should it get
// lost, the record goes when there are too many.
func (p *Process) forgetSoon() bool {
	p.mu.Lock()
	st := p.follow
	p.mu.Unlock()
	if st == nil {
		return false
	}
	_ = st.SetWriteDeadline(time.Now().Add(ackTimeout))
	return wire.WriteFrame(st, wire.TypeForget, nil) == nil
}
