package runtime

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

const (
	// ackAfter is how much of an output is sent before its receipt is passed on to the supervisor: less fits
	// its smallest ring anyway.
	ackAfter = 2 << 10
	// takenEvery is how much of stdin a process takes between two words about it.
	takenEvery = 128 << 10
)

// relay carries one process's streams over a session.
type relay struct {
	d     *desk
	p     *supervisor.Process
	s     *stream.Session
	acks  bool // what the caller has received need not be kept for it any longer
	taken bool // the caller is told how much of its stdin was taken
	words *tail
	until *supervisor.Offsets // it ends there, if set

	cancel  context.CancelFunc
	helpers sync.WaitGroup
	outs    [2]output
}

// output is one of the two, with the place of its channel's bytes in the process's output.
type output struct {
	c     *stream.Channel
	sent  int64 // bytes on the channel
	acked bool  // acknowledge runs

	mu    sync.Mutex
	after int64 // the byte after so many on the channel …
	at    int64 // … is the one at this offset
}

// run carries until the process has ended, and gives how; nil if it was not followed to its end.
func (r *relay) run(ctx context.Context, stdin bool) (*supervisor.Exit, error) {
	for i, name := range []string{stream.Stdout, stream.Stderr} {
		r.outs[i].c = r.s.Channel(name)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.helpers.Go(func() { r.control(ctx) })
	if stdin {
		r.helpers.Go(func() { r.input(ctx) })
	}
	exit, err := r.output(ctx)
	r.cancel()
	_ = r.s.Channel(stream.Stdin).CloseRead() // wakes the reader of it
	r.helpers.Wait()
	return exit, err
}

// output carries what the process writes, until it has ended.
func (r *relay) output(ctx context.Context) (*supervisor.Exit, error) {
	at := supervisor.Offsets{Stdout: uint64(r.outs[0].at), Stderr: uint64(r.outs[1].at)}
	for {
		if r.until != nil && at.Stdout >= r.until.Stdout && at.Stderr >= r.until.Stderr {
			return nil, nil
		}
		ev, err := r.p.Next(ctx)
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errReplaced) {
				err = cause
			}
			return nil, err
		}
		if ev.Exit != nil {
			return ev.Exit, nil
		}
		r.d.life.active.touch()
		if r.words != nil {
			r.words.add(ev.Stream, ev.Data)
		}
		o, next := &r.outs[0], &at.Stdout
		if ev.Stream == supervisor.Stderr {
			o, next = &r.outs[1], &at.Stderr
		}
		if ev.Dropped > 0 {
			if err := r.gap(ctx, o, ev); err != nil {
				return nil, err
			}
		}
		*next = ev.Offset + uint64(len(ev.Data))
		n, err := o.c.Write(ev.Data)
		o.sent += int64(n)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return nil, err
		}
		if r.acks && !o.acked && o.sent > ackAfter {
			o.acked = true
			r.helpers.Go(func() { r.acknowledge(ctx, ev.Stream, o) })
		}
	}
}

// gap tells the caller that bytes are missing. What comes after them is sent when the caller knows, so
// that it can never take it for what is missing, wherever the connection breaks.
func (r *relay) gap(ctx context.Context, o *output, ev supervisor.Event) error {
	if err := o.c.Flush(ctx); err != nil {
		return err
	}
	name := stream.Stdout
	if ev.Stream == supervisor.Stderr {
		name = stream.Stderr
	}
	if err := r.s.Send(stream.Gap, runtime.Gap{Stream: name, After: o.sent, Offset: int64(ev.Offset), Lost: int64(ev.Dropped)}); err != nil {
		return err
	}
	o.mu.Lock()
	o.after, o.at = o.sent, int64(ev.Offset)
	o.mu.Unlock()
	return r.s.FlushMessages(ctx)
}

// acknowledge tells the supervisor what the caller has received.
func (r *relay) acknowledge(ctx context.Context, st supervisor.Stream, o *output) {
	n := int64(0)
	for {
		var err error
		n, err = o.c.WaitReceived(ctx, n)
		o.mu.Lock()
		at := o.at + n - o.after
		behind := n < o.after
		o.mu.Unlock()
		if !behind {
			if st == supervisor.Stdout {
				r.p.Ack(supervisor.Offsets{Stdout: uint64(at)})
			} else {
				r.p.Ack(supervisor.Offsets{Stderr: uint64(at)})
			}
		}
		if err != nil {
			return
		}
	}
}

// input carries what the caller sends to the process.
func (r *relay) input(ctx context.Context) {
	in := r.s.Channel(stream.Stdin)
	b := make([]byte, 32<<10)
	untold := 0
	for {
		n, err := in.Read(b)
		if n > 0 {
			r.d.life.active.touch()
			if werr := r.p.WriteStdin(ctx, b[:n]); werr != nil {
				return // the process has ended, or closed it
			}
			if untold += n; r.taken && untold >= takenEvery {
				untold = 0
				if r.s.Send(stream.Taken, runtime.Taken{Stdin: int64(r.p.StdinTaken())}) != nil {
					return
				}
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && ctx.Err() == nil {
				_ = r.p.CloseStdin(ctx)
			}
			return
		}
	}
}

// control takes the caller's messages.
func (r *relay) control(ctx context.Context) {
	for {
		m, err := r.s.Receive(ctx)
		if err != nil {
			return
		}
		switch m.Type {
		case stream.Resize:
			if q, err := mesh.Decode[runtime.ResizeRequest](m.Value); err == nil {
				_ = r.p.Resize(ctx, supervisor.Size{Rows: q.Rows, Cols: q.Cols})
			}
		case stream.Signal:
			if q, err := mesh.Decode[runtime.SignalRequest](m.Value); err == nil {
				_ = sendSignal(ctx, r.p, q)
			}
		}
	}
}

// sendSignal sends what is asked for to a process, its group or its tree.
func sendSignal(ctx context.Context, p *supervisor.Process, q runtime.SignalRequest) error {
	sig, err := signalNamed(q.Signal)
	if err != nil {
		return err
	}
	target := supervisor.Target(q.Target)
	switch target {
	case "":
		target = supervisor.TargetGroup
	case supervisor.TargetProcess, supervisor.TargetGroup, supervisor.TargetTree:
	default:
		return fault.New(fault.Invalid, `"target" %.20q is none of process, group, tree`, q.Target)
	}
	return p.Signal(ctx, sig, target)
}

// signalNamed knows SIGTERM, TERM and the others by name, and all by number.
func signalNamed(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 1 || n > 64 {
			return 0, fault.New(fault.Invalid, "signal %d is none of 1 to 64", n)
		}
		return syscall.Signal(n), nil
	}
	long := name
	if len(name) < 3 || name[:3] != "SIG" {
		long = "SIG" + name
	}
	if sig := unix.SignalNum(long); sig != 0 {
		return sig, nil
	}
	return 0, fault.New(fault.Invalid, "there is no signal %.20q; use a name such as SIGTERM, or a number", name)
}
