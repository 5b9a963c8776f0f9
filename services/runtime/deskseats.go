package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// seats are the places of those who may come back: the owner of a process, and the readers with a name. Who comes back takes
// the place of itself: what was left of the connection before is ended first.
type seats struct {
	closed chan struct{} // closed when the desk is
	mu     sync.Mutex
	taken  map[string]*seat
}

// seat is one such place, as long as one connection has it.
type seat struct {
	all    *seats
	key    string
	cancel context.CancelCauseFunc
	next   chan struct{} // closed when somebody else has the place
	left   chan struct{} // closed when its connection has ended
	once   sync.Once
}

func newSeats() *seats { return &seats{closed: make(chan struct{}), taken: map[string]*seat{}} }

func ownerSeat(process string) string          { return "owner " + process }
func readerSeat(process, reader string) string { return "reader " + process + " " + reader }

var errReplaced = fault.New(fault.Conflict, "the same caller has come back on another stream, and goes on there")

// take takes a place, when the one who had it has gone. The context that it gives ends when the place is taken by another.
func (a *seats) take(ctx context.Context, key string) (*seat, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	n := &seat{all: a, key: key, cancel: cancel, next: make(chan struct{}), left: make(chan struct{})}
	a.mu.Lock()
	before := a.taken[key]
	a.taken[key] = n
	a.mu.Unlock()
	if before != nil {
		close(before.next)
		before.cancel(errReplaced)
		select {
		case <-before.left:
		case <-ctx.Done():
		}
	}
	return n, ctx
}

// leave says that the seat's connection has ended. Its place stays its own until it is given up.
func (n *seat) leave() {
	n.once.Do(func() { n.cancel(nil); close(n.left) })
}

// giveUp frees the place, unless another has it, and reports whether it was still its own.
func (n *seat) giveUp() bool {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	if n.all.taken[n.key] != n {
		return false
	}
	delete(n.all.taken, n.key)
	return true
}

// wait holds the place for one who may come back. It reports whether nobody came.
func (n *seat) wait(d time.Duration, gone <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-n.next:
		return false
	case <-n.all.closed:
		return false
	case <-gone:
		return false
	case <-t.C:
		return true
	}
}

// belongs sees to a process that ends with its caller, when the caller's stream has ended.
func (d *desk) belongs(p *supervisor.Process, s *stream.Session, n *seat) {
	n.leave()
	d.s.work.Go(func() {
		<-s.Done() // the caller has everything, or is gone
		if s.Err() == nil {
			if p.ForgetSoon() {
				n.giveUp()
				return
			}
			d.end(p, n)
		} else if s.Left() || n.wait(d.s.cfg.timing.caller, d.box.Gone()) {
			d.end(p, n)
		}
		_ = p.Close() // if it goes on, then without us
	})
}

// end ends a process that nobody will come back for.
func (d *desk) end(p *supervisor.Process, n *seat) {
	if !n.giveUp() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	ctx, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	if err := p.Forget(ctx); fault.Is(err, fault.Conflict) { // it still runs
		_ = p.Stop(ctx, stopGrace)
		_, _ = p.Wait(ctx)
		_ = p.Forget(ctx)
	}
}

// recover waits for the callers of the processes that an earlier node's process was executing, and ends those
// whose caller does not come back.
func (d *desk) recover() {
	d.s.work.Go(func() {
		ctx, stop := until(context.Background(), d.box.Gone(), errGone)
		defer stop()
		ctx, done := until(ctx, d.seats.closed, errReplaced)
		defer done()
		list, err := d.box.Supervisor().List(ctx)
		if err != nil {
			return
		}
		for _, i := range list {
			if i.Labels[labelKind] != kindExec {
				continue
			}
			if n := d.seats.expect(ownerSeat(i.ID)); n != nil {
				p := d.box.Supervisor().Process(i.ID)
				d.s.work.Go(func() {
					if n.wait(d.s.cfg.timing.caller, d.box.Gone()) {
						d.end(p, n)
					}
				})
			}
		}
	})
}

// expect takes a place for one who is to come back, unless it is there already.
func (a *seats) expect(key string) *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken[key] != nil {
		return nil
	}
	n := &seat{all: a, key: key, cancel: func(error) {}, next: make(chan struct{}), left: make(chan struct{})}
	close(n.left)
	a.taken[key] = n
	return n
}
