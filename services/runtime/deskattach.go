package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// readerGrace is how long the output is kept for a reader who has a name and lost its connection.
const readerGrace = time.Minute

// Attach follows a process's output. Whoever leaves leaves the process running, but for the owner of one that Exec had started.
func (d *desk) Attach(ctx context.Context, _ mesh.Caller, req runtime.AttachRequest, s *stream.Session) (runtime.Process, error) {
	defer d.life.active.moment()()
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	info, err := d.find(alive, req.Process)
	if err != nil {
		return runtime.Process{}, d.failed(alive, err)
	}
	at, err := startOf(req, info)
	if err != nil {
		return runtime.Process{}, err
	}
	out, err := d.attach(alive, req, info, at, s)
	return out, d.failed(alive, err)
}

// startOf is where a reader begins.
func startOf(req runtime.AttachRequest, info supervisor.ProcessInfo) (supervisor.Offsets, error) {
	at := info.Oldest
	switch {
	case req.At != nil && req.Tail != nil:
		return at, fault.New(fault.Invalid, `give "at" or "tail", not both`)
	case req.At != nil:
		if req.At.Stdout < 0 || req.At.Stderr < 0 {
			return at, fault.New(fault.Invalid, `"at" is not negative`)
		}
		at = supervisor.Offsets{Stdout: uint64(req.At.Stdout), Stderr: uint64(req.At.Stderr)}
	case req.Tail != nil:
		if *req.Tail < 0 {
			return at, fault.New(fault.Invalid, `"tail" is not negative`)
		}
		n := uint64(*req.Tail)
		at.Stdout, at.Stderr = max(at.Stdout, info.End.Stdout-min(n, info.End.Stdout)), max(at.Stderr, info.End.Stderr-min(n, info.End.Stderr))
	}
	if req.Reader != "" {
		if err := schemas.CheckID("reader", req.Reader); err != nil {
			return at, fault.New(fault.Invalid, "%v", err)
		}
	}
	if req.Owner && info.Labels[labelKind] != kindExec {
		return at, fault.New(fault.Invalid, "process %s runs in the background: it has no owner", info.ID)
	}
	return at, nil
}

func (d *desk) attach(ctx context.Context, req runtime.AttachRequest, info supervisor.ProcessInfo, at supervisor.Offsets, s *stream.Session) (runtime.Process, error) {
	var n *seat
	switch {
	case req.Owner:
		n, ctx = d.seats.take(ctx, ownerSeat(info.ID))
	case req.Reader != "":
		n, ctx = d.seats.take(ctx, readerSeat(info.ID, req.Reader))
	}
	p, err := d.box.Supervisor().AttachAs(ctx, info.ID, at, supervisor.AttachOptions{Reader: req.Reader, Manual: true})
	if err != nil {
		if n != nil {
			n.leave()
			n.giveUp()
		}
		return runtime.Process{}, err
	}
	switch {
	case req.Owner:
		defer d.belongs(p, s, n)
	case n != nil:
		defer d.reads(p, s, n)
	default:
		defer p.Close()
	}
	r := &relay{d: d, p: p, s: s, taken: true}
	r.acks = req.Owner || p.Info().Output == supervisor.OutputAttached
	r.outs[0].at, r.outs[1].at = int64(at.Stdout), int64(at.Stderr)
	if req.Kept {
		end := p.Info().End
		r.until = &end
	}
	now := runtime.Attached{Process: d.describe(p.Info()), At: runtime.Offsets{Stdout: int64(at.Stdout), Stderr: int64(at.Stderr)}}
	stdin := req.Stdin && p.Info().Exit == nil
	if stdin {
		if taken, err := p.OpenStdin(ctx); err == nil {
			now.Stdin = int64(taken)
		} else if stdin = false; !fault.Is(err, fault.Conflict) {
			return runtime.Process{}, err // but an input that was closed stays so
		}
	}
	if err := s.Greet(stream.Started, now); err != nil {
		return runtime.Process{}, err
	}
	exit, err := r.run(ctx, stdin)
	if err != nil {
		return runtime.Process{}, err
	}
	out := p.Info()
	out.Exit = exit
	return d.describe(out), nil
}

// reads keeps the place of a reader with a name when its stream has ended.
func (d *desk) reads(p *supervisor.Process, s *stream.Session, n *seat) {
	n.leave()
	d.s.work.Go(func() {
		defer p.Close()
		<-s.Done()
		if s.Err() == nil || s.Left() || n.wait(readerGrace, d.box.Gone()) {
			n.giveUp()
		}
	})
}
