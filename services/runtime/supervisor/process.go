package supervisor

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Process is one process in a sandbox, followed from where it was started or attached.
type Process struct {
	box    *Sandbox
	id     string
	info   ProcessInfo // when it was started or attached
	reader string      // see AttachOptions
	manual bool        // no acknowledgements but those of Ack

	// Of Next alone.
	next   Offsets // what is expected next
	ended  bool    // the exit was given
	onceMu sync.Mutex

	mu     sync.Mutex
	follow *stream // nil after a broken connection, and after Close
	acked  Offsets
	sent   Offsets // acknowledgements that were sent on follow
	acking bool    // somebody is sending them
	closed bool

	stdinMu sync.Mutex
	stdin   *stream
	written uint64 // bytes of stdin that the process took
}

// Event is one piece of output, or the end.
type Event struct {
	Stream Stream
	Offset uint64 // of the first byte of Data
	Data   []byte // valid until the next call of Next
	// Dropped is how many bytes before Offset were lost to a full ring.
	Dropped uint64
	// Exit is set in the last event, which has no Data.
	Exit *Exit
}

// Start runs a process. It is done at most once per ProcessSpec.ID: should the connection break in
// between, it is asked again and gives the process that was started. An ID that is taken by an
// earlier Start is a conflict. A command that can't be executed is no error of Start: the
// process ends at once with code 126 or 127. The caller must call Close or Forget on the Process.
func (s *Sandbox) Start(ctx context.Context, spec ProcessSpec) (*Process, error) {
	if spec.ID == "" {
		spec.ID = s.opt.NewID()
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	req := wire.Request{Op: wire.OpStart, Spec: &spec}
	for {
		st, reply, err := s.open(ctx, req)
		if err == nil {
			return s.newProcess(st, reply, Offsets{})
		}
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return nil, err
		}
		req.Again = true
	}
}

// Attach follows a process from the offsets at, which may be the zero value: all that is kept.
// If bytes before an offset were dropped, the first Event says how many.
func (s *Sandbox) Attach(ctx context.Context, id string, at Offsets) (*Process, error) {
	return s.AttachAs(ctx, id, at, AttachOptions{})
}

// AttachOptions are for one who follows a process on behalf of somebody farther away.
type AttachOptions struct {
	// Reader is the name under which the reader is known again after this node's process has restarted: what
	// it has not acknowledged is kept for a minute. Attached again it takes the place of itself, and the
	// one before gets conflict. Without a name the place is that of whoever was lost without one.
	Reader string
	// Manual leaves it to the caller to call Ack; else an attached process's output is acknowledged when it was read.
	Manual bool
}

// AttachAs is Attach with options.
func (s *Sandbox) AttachAs(ctx context.Context, id string, at Offsets, o AttachOptions) (*Process, error) {
	for {
		st, reply, err := s.open(ctx, wire.Request{Op: wire.OpAttach, Process: id, At: &at, Reader: o.Reader})
		if err == nil {
			p, err := s.newProcess(st, reply, at)
			if err == nil {
				p.reader, p.manual, p.acked, p.sent = o.Reader, o.Manual, at, at
			}
			return p, err
		}
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// Process is a handle on a process, running or not, that is not followed until Next is called.
func (s *Sandbox) Process(id string) *Process { return &Process{box: s, id: id} }

func (s *Sandbox) newProcess(st *stream, reply wire.Reply, at Offsets) (*Process, error) {
	if reply.Process == nil {
		_ = st.Close()
		return nil, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
	}
	return &Process{box: s, id: reply.Process.ID, info: *reply.Process, next: at, follow: st}, nil
}

// ID of the process.
func (p *Process) ID() string { return p.id }

// PID inside the sandbox; 0 if it never started.
func (p *Process) PID() int { return p.info.PID }

// Info is the process as it was when it was started or attached.
func (p *Process) Info() ProcessInfo { return p.info }

// ackEvery is how much of an attached process's output is read between two acknowledgements. It
// is well below the smallest ring.
const ackEvery = 32 << 10

// Next gives the next event, in order of each stream, and io.EOF after the exit. It reconnects as
// often as it must. It is the reader's pace that holds back the process (see OutputMode).
func (p *Process) Next(ctx context.Context) (Event, error) {
	p.onceMu.Lock()
	defer p.onceMu.Unlock()
	for {
		if p.ended {
			return Event{}, io.EOF
		}
		st, err := p.following(ctx)
		if err != nil {
			return Event{}, err
		}
		if p.info.Output == OutputAttached && !p.manual && p.next.Stdout+p.next.Stderr >= p.sentTotal()+ackEvery {
			p.Ack(p.next)
		}
		stop := st.until(ctx)
		f, err := st.frames.Message()
		stop()
		if err == nil {
			return p.event(f)
		}
		err = st.failed(ctx, err)
		if !errors.Is(err, errLost) && ctx.Err() == nil {
			return Event{}, err
		}
		// A cancelled read may have taken half a frame: the stream is of no more use either way.
		p.unfollow(st)
		if ctx.Err() != nil {
			return Event{}, err
		}
	}
}

func (p *Process) event(f wire.Frame) (Event, error) {
	switch f.Type {
	case wire.TypeStdout, wire.TypeStderr:
		offset, data, err := f.Offset()
		if err != nil {
			return Event{}, fault.Wrap(err, fault.Internal, "the sandbox's answer is not to be understood")
		}
		ev := Event{Stream: Stdout, Offset: offset, Data: data}
		next := &p.next.Stdout
		if f.Type == wire.TypeStderr {
			ev.Stream, next = Stderr, &p.next.Stderr
		}
		if offset < *next || len(data) == 0 || offset+uint64(len(data)) < offset {
			return Event{}, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
		}
		ev.Dropped = offset - *next
		*next = offset + uint64(len(data))
		return ev, nil
	case wire.TypeExit:
		var x Exit
		if err := f.Decode(&x); err != nil {
			return Event{}, fault.Wrap(err, fault.Internal, "the sandbox's answer is not to be understood")
		}
		p.ended = true
		return Event{Exit: &x}, nil
	case wire.TypeError:
		return Event{}, decodeError(f)
	}
	return Event{}, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
}

// following gives the stream, attaching anew after the connection broke.
func (p *Process) following(ctx context.Context) (*stream, error) {
	for {
		p.mu.Lock()
		st, closed, acked := p.follow, p.closed, p.acked
		p.mu.Unlock()
		if closed {
			return nil, fault.New(fault.Conflict, "process %s is no longer followed", p.id)
		}
		if st != nil {
			return st, nil
		}
		at := p.next
		st, _, err := p.box.open(ctx, wire.Request{Op: wire.OpAttach, Process: p.id, At: &at, Acked: &acked, Reader: p.reader})
		if errors.Is(err, errLost) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			_ = st.Close()
			continue
		}
		p.follow, p.sent = st, acked
		p.mu.Unlock()
	}
}

func (p *Process) unfollow(st *stream) {
	_ = st.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow == st {
		p.follow = nil
	}
}

func (p *Process) sentTotal() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.Stdout + p.sent.Stderr
}

// Ack says that all output before these offsets is safe: a lossless process may forget it. It
// reports no error; it is repeated after a reconnect. Offsets that go back are ignored.
func (p *Process) Ack(at Offsets) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked.Stdout, p.acked.Stderr = max(p.acked.Stdout, at.Stdout), max(p.acked.Stderr, at.Stderr)
	if p.acking {
		return // who is at it sends these, too
	}
	p.acking = true
	defer func() { p.acking = false }()
	for p.follow != nil && p.acked != p.sent {
		st, now := p.follow, p.acked
		p.mu.Unlock() // a sandbox that reads nothing must hold up nobody else, and this one not for ever
		_ = st.SetWriteDeadline(time.Now().Add(ackTimeout))
		err := wire.WriteOffsets(st, wire.TypeAck, now.Stdout, now.Stderr)
		if err != nil {
			p.unfollow(st) // part of it may have been sent; Next attaches anew
		}
		p.mu.Lock()
		if err == nil && p.follow == st {
			p.sent = now
		}
	}
}

// ackTimeout bounds how long an acknowledgement waits for a sandbox to take it.
const ackTimeout = 10 * time.Second

// Wait returns when the process has ended and its output is complete. It needs no reading beside
// it, but a process that is held back by its unread output does not end.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	r, err := p.box.askAgain(ctx, wire.Request{Op: wire.OpWait, Process: p.id})
	if err != nil {
		return Exit{}, err
	}
	if r.Exit == nil {
		return Exit{}, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
	}
	return *r.Exit, nil
}

// Signal sends sig. A process that has ended is conflict; the group and tree may outlive it.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal, target Target) error {
	_, err := p.box.ask(ctx, wire.Request{Op: wire.OpSignal, Process: p.id, Signal: int(sig), Target: target})
	return err
}

// Stop ends the whole tree: SIGTERM, and after grace SIGKILL (at once if grace is 0), until none is
// left. The Exit's reason is killed. It returns when the tree is gone or could not be killed (Exit.Leftovers).
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	_, err := p.box.askAgain(ctx, wire.Request{Op: wire.OpStop, Process: p.id, Grace: grace})
	return err
}

// Resize sets the terminal's size.
func (p *Process) Resize(ctx context.Context, size Size) error {
	_, err := p.box.askAgain(ctx, wire.Request{Op: wire.OpResize, Process: p.id, Size: &size})
	return err
}

// Forget removes the record of an ended process and its kept output, and closes p.
func (p *Process) Forget(ctx context.Context) error {
	_ = p.Close()
	_, err := p.box.askAgain(ctx, wire.Request{Op: wire.OpForget, Process: p.id})
	return err
}

// Close stops following. The process goes on.
func (p *Process) Close() error {
	p.mu.Lock()
	st := p.follow
	p.follow, p.closed = nil, true
	p.mu.Unlock()
	if st != nil {
		_ = st.SetDeadline(time.Unix(1, 0)) // a Next in progress returns
		_ = st.Close()
	}
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	if p.stdin != nil {
		_ = p.stdin.Close()
		p.stdin = nil
	}
	return nil
}
