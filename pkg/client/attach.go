package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
)

// Streams are what a process's streams are connected to. A nil writer throws away, a nil reader sends nothing.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Started is called when the process is known, before anything of it is written; not again when the connection is resumed.
	Started func(runtime.Process)
	// Gap is called where output is missing because it was dropped before it could be sent.
	Gap func(runtime.Gap)
}

// AttachOptions say from where on a process is followed. The zero value: all that is kept, and what comes.
type AttachOptions struct {
	At   *runtime.Offsets // from these offsets on
	Tail *int64           // at most so many bytes of what is kept
	Kept bool             // only what is kept now
}

// Attach follows a process until it ends, and gives it as it is then. It goes on by itself where it was, without a gap or a
// repeat, when the connection broke, or the node's process restarted (a process that is not held back by its readers may have
// dropped output meanwhile: then Gap says so). The end of ctx leaves the process running.
func (c *Client) Attach(ctx context.Context, sandbox, process string, o AttachOptions, io Streams) (runtime.Process, error) {
	f := newFollower(c, sandbox, io)
	f.req = runtime.AttachRequest{Process: process, At: o.At, Tail: o.Tail, Kept: o.Kept, Stdin: io.Stdin != nil, Reader: schemas.NewID()}
	return f.follow(ctx, f.attach)
}

// Execute runs a command in the foreground. It survives a restart of the node's process as Attach does. The end of ctx, or of
// this program, ends the command.
func (c *Client) Execute(ctx context.Context, sandbox string, r runtime.ExecRequest, io Streams) (runtime.ExecResult, error) {
	if r.ID == "" {
		r.ID = schemas.NewID()
	}
	r.Stdin = io.Stdin != nil
	f := newFollower(c, sandbox, io)
	f.req = runtime.AttachRequest{Process: r.ID, Owner: true, Stdin: r.Stdin}
	if f.input != nil {
		f.input.from(0) // nobody else has given it anything
	}
	p, err := f.follow(ctx, func(ctx context.Context) (*stream.Session, error) {
		return c.openProcess(ctx, sandbox, runtime.OpExec, r, r.Stdin)
	})
	if err != nil {
		return runtime.ExecResult{}, err
	}
	out := runtime.ExecResult{Process: p.ID, CPUMS: p.CPUMS, MaxRSS: p.MaxRSS, Message: p.Message}
	if p.Exit != nil {
		out.Exit = *p.Exit
	}
	return out, nil
}

// gone makes a stream be given up soon when nobody listens to it any more: it is opened anew at no loss.
var gone = stream.WithTiming(stream.Timing{Gone: time.Second, Silence: 6 * time.Second, Idle: 30 * time.Second})

func (c *Client) openProcess(ctx context.Context, sandbox, op string, r any, input bool) (*stream.Session, error) {
	subject, err := c.sbx(sandbox, op)
	if err != nil {
		return nil, err
	}
	s, err := stream.Open(ctx, c.conn, subject, r, append(noInput(input), gone)...)
	if fault.Is(err, fault.Unavailable) {
		err = c.whyAway(ctx, sandbox, err)
	}
	return s, err
}

// follower is one who follows a process over as many streams as it takes.
type follower struct {
	c       *Client
	sandbox string
	req     runtime.AttachRequest
	io      Streams
	input   *input
	started bool
	outs    [2]*outlet
}

func newFollower(c *Client, sandbox string, io Streams) *follower {
	f := &follower{c: c, sandbox: sandbox, io: io}
	f.outs = [2]*outlet{{w: io.Stdout}, {w: io.Stderr}}
	if io.Stdin != nil {
		f.input = newInput(io.Stdin)
	}
	return f
}

func (f *follower) attach(ctx context.Context) (*stream.Session, error) {
	return f.c.openProcess(ctx, f.sandbox, runtime.OpAttach, f.req, f.input != nil)
}

// follow opens with open, and by attach when that broke, until the process has ended.
func (f *follower) follow(ctx context.Context, open func(context.Context) (*stream.Session, error)) (runtime.Process, error) {
	if f.input != nil {
		defer f.input.stop()
	}
	again := retry{c: f.c, sandbox: f.sandbox}
	for {
		s, err := open(ctx)
		if err != nil && !f.started { // whether it runs at all is for the caller to find out
			return runtime.Process{}, err
		}
		var p runtime.Process
		if err == nil {
			p, err = f.one(ctx, s)
			_ = s.Close()
			if err == nil {
				return p, nil
			}
			if f.failed() != nil {
				return p, f.failed()
			}
			again.reset()
		}
		if !f.started || !again.after(ctx, err) {
			if ctx.Err() != nil {
				err = fault.Wrap(ctx.Err(), fault.CodeOf(ctx.Err()), "no longer attached")
			}
			return p, err
		}
		f.req.At, f.req.Tail = &runtime.Offsets{Stdout: f.outs[0].offset(), Stderr: f.outs[1].offset()}, nil
		open = f.attach
	}
}

// failed is why what comes can't be written here.
func (f *follower) failed() error { return errors.Join(f.outs[0].failed, f.outs[1].failed) }

// one follows over one stream.
func (f *follower) one(ctx context.Context, s *stream.Session) (runtime.Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, o := range f.outs {
		o.begin()
	}
	var all sync.WaitGroup
	messages := make(chan struct{})
	if f.input != nil {
		all.Go(func() { f.input.send(ctx, s) })
	} else {
		_ = s.Channel(stream.Stdin).CloseWrite()
	}
	go func() { defer close(messages); f.receive(ctx, s) }()
	for i, name := range []string{stream.Stdout, stream.Stderr} {
		all.Go(func() {
			if f.outs[i].copy(s.Channel(name)); f.outs[i].failed != nil {
				_ = s.Close()
			}
		})
	}
	<-messages // all that were received: the offsets are right
	var p runtime.Process
	err := s.Result(ctx, &p)
	if err == nil && p.ID == "" { // it is exec's, which has another
		var x runtime.ExecResult
		err = s.Result(ctx, &x)
		p = runtime.Process{ID: x.Process, Exit: &x.Exit, CPUMS: x.CPUMS, MaxRSS: x.MaxRSS, Message: x.Message}
	}
	cancel()
	all.Wait()
	return p, err
}

// receive takes the messages until none will come.
func (f *follower) receive(ctx context.Context, s *stream.Session) {
	for {
		m, err := s.Receive(ctx)
		if err != nil {
			return
		}
		switch m.Type {
		case stream.Started:
			f.start(m)
		case stream.Taken:
			if t, err := mesh.Decode[runtime.Taken](m.Value); err == nil && f.input != nil {
				f.input.taken(t.Stdin)
			}
		case stream.Gap:
			g, err := mesh.Decode[runtime.Gap](m.Value)
			if err != nil {
				continue
			}
			o := f.outs[0]
			if g.Stream == stream.Stderr {
				o = f.outs[1]
			}
			o.gap(g)
			if f.io.Gap != nil {
				f.io.Gap(g)
			}
		}
	}
}

// start takes the first message: of exec the process, of attach also the offsets.
func (f *follower) start(m stream.Message) {
	at, err := mesh.Decode[runtime.Attached](m.Value)
	p := at.Process
	switch {
	case err != nil:
		return
	case p.ID == "": // exec's: everything begins at 0
		if p, err = mesh.Decode[runtime.Process](m.Value); err != nil {
			return
		}
	default:
		f.outs[0].from(at.At.Stdout)
		f.outs[1].from(at.At.Stderr)
		if f.input != nil {
			f.input.from(at.Stdin)
		}
	}
	f.req.Process = p.ID // a name may be another's by then
	if !f.started && f.io.Started != nil {
		f.io.Started(p)
	}
	f.started = true
}

// outlet writes one of the outputs and knows its offset.
type outlet struct {
	w      io.Writer
	failed error

	mu    sync.Mutex
	base  int64         // offset of the channel's first byte
	count int64         // bytes of the channel
	gaps  []runtime.Gap // of the channel
}

func (o *outlet) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base, o.count, o.gaps = o.base0(), 0, nil
}

// base0 is where the next channel begins unless its first message says otherwise. The mutex is held.
func (o *outlet) base0() int64 {
	at, after := o.base, int64(0)
	for _, g := range o.gaps {
		if g.After <= o.count {
			at, after = g.Offset, g.After
		}
	}
	return at + o.count - after
}

// offset is that of the next byte that is wanted.
func (o *outlet) offset() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.base0()
}

func (o *outlet) from(at int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.base = at
}

func (o *outlet) gap(g runtime.Gap) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gaps = append(o.gaps, g)
	if len(o.gaps) > 1 && o.gaps[1].After <= o.count { // of those that are past, the newest counts
		o.gaps = o.gaps[1:]
	}
}

// copy writes what comes until the channel ends.
func (o *outlet) copy(c *stream.Channel) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if n > 0 {
			if o.w != nil && o.failed == nil {
				if _, werr := o.w.Write(b[:n]); werr != nil {
					o.failed = werr
					return
				}
			}
			o.mu.Lock()
			o.count += int64(n)
			o.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// maxUntaken bounds what is kept of stdin until the process has taken it: more than can be on its way.
const maxUntaken = 4 << 20

// input keeps what was read of stdin until the process has taken it, to send it again where a connection broke.
type input struct {
	mu    sync.Mutex
	cond  *sync.Cond
	kept  []byte // from offset base on
	base  int64
	begun bool  // base is known
	over  bool  // nobody wants it any more
	ended bool  // nothing will be read any more
	next  int64 // offset of what is to be sent next on the stream of the moment
	known bool  // next is right for it
}

func newInput(r io.Reader) *input {
	in := &input{}
	in.cond = sync.NewCond(&in.mu)
	go in.read(r) // ends with stdin, or with the program: a read of a terminal can't be taken back
	return in
}

func (in *input) read(r io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		in.mu.Lock()
		in.kept = append(in.kept, b[:n]...)
		in.ended = err != nil
		in.cond.Broadcast()
		for len(in.kept) > maxUntaken && !in.over {
			in.cond.Wait()
		}
		over := in.over
		in.mu.Unlock()
		if err != nil || over {
			return
		}
	}
}

// taken lets go of what the process has taken.
func (in *input) taken(to int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := to - in.base; n > 0 && n <= int64(len(in.kept)) {
		in.kept, in.base = in.kept[n:], to
		in.cond.Broadcast()
	}
}

// from begins a stream: the process has taken what is before at. On the first it was given by others.
func (in *input) from(at int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch end := in.base + int64(len(in.kept)); {
	case !in.begun:
		in.base, in.begun = at, true
	case at > end: // others have given something meanwhile
		in.base, in.kept = at, nil
	case at > in.base:
		in.base, in.kept = at, in.kept[at-in.base:]
	}
	in.next, in.known = in.base, true
	in.cond.Broadcast()
}

// send sends on one stream until it is over.
func (in *input) send(ctx context.Context, s *stream.Session) {
	defer context.AfterFunc(ctx, in.wake)()
	defer func() { in.mu.Lock(); in.known = false; in.mu.Unlock() }()
	c := s.Channel(stream.Stdin)
	for {
		in.mu.Lock()
		for ctx.Err() == nil && !(in.known && (in.ended || in.next < in.base+int64(len(in.kept)))) {
			in.cond.Wait()
		}
		if ctx.Err() != nil {
			in.mu.Unlock()
			return
		}
		b := append([]byte(nil), in.kept[in.next-in.base:]...)
		in.mu.Unlock()
		if len(b) == 0 { // and nothing will follow
			_ = c.CloseWrite()
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
		in.mu.Lock()
		in.next += int64(len(b))
		in.mu.Unlock()
	}
}

// stop ends the reading, at the latest with the next bytes that come.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.cond.Broadcast()
}

func (in *input) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cond.Broadcast()
}
