package weftinit

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/hashicorp/yamux"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// call is one operation that the node asked for.
type call struct {
	s       *supervisor
	session *yamux.Session
	stream  *yamux.Stream
	frames  *wire.Reader
	req     *wire.Request
}

// reply answers; what follows on the stream depends on the operation.
func (c *call) reply(r wire.Reply) error {
	return wire.WriteMessage(c.stream, wire.TypeReply, r)
}

// safely dispatches. A defect in one operation ends that operation: process 1's end would take the sandbox along.
func (c *call) safely() (err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "weft-init: defect in operation %.40q: %v\n%s", string(c.req.Op), p, debug.Stack())
			err = fault.New(fault.Internal, "the sandbox's supervisor has a defect in this operation; its log has more")
		}
	}()
	return c.dispatch()
}

func (c *call) dispatch() error {
	if err := c.s.cfg.checkRoot(c.req); err != nil {
		return err
	}
	switch c.req.Op {
	case wire.OpStart:
		return c.start()
	case wire.OpList:
		return c.reply(wire.Reply{Processes: c.s.list()})
	case wire.OpForget:
		return c.done(c.s.forget(c.req.Process))
	case wire.OpKillAll:
		c.s.killAll(c.req.Grace)
		return c.reply(wire.Reply{})
	case wire.OpUsage:
		u := measure()
		return c.reply(wire.Reply{Usage: &u})
	case wire.OpLimits:
		return c.limits()
	case wire.OpShow:
		return c.done(c.s.show.now())
	case wire.OpDial:
		return c.dial()
	case wire.OpAttach, wire.OpStdin, wire.OpWait, wire.OpSignal, wire.OpStop, wire.OpResize:
		p, err := c.s.find(c.req.Process)
		if err != nil {
			return err
		}
		return c.onProcess(p)
	}
	return c.onFiles()
}

func (c *call) onProcess(p *process) error {
	switch c.req.Op {
	case wire.OpAttach:
		if c.req.Acked != nil {
			p.ack(nil, *c.req.Acked)
		}
		return c.follow(p)
	case wire.OpStdin:
		return c.stdin(p)
	case wire.OpWait:
		return c.wait(p)
	case wire.OpSignal:
		return c.done(p.signal(syscall.Signal(c.req.Signal), c.req.Target))
	case wire.OpStop:
		p.stop(c.req.Grace)
		return c.reply(wire.Reply{})
	default: // OpResize
		if c.req.Size == nil {
			return errIncomplete
		}
		return c.done(p.resize(*c.req.Size))
	}
}

var errIncomplete = fault.New(fault.Invalid, "the request lacks a field that its operation needs")

func (c *call) done(err error) error {
	if err != nil {
		return err
	}
	return c.reply(wire.Reply{})
}

func (c *call) start() error {
	if c.req.Spec == nil {
		return errIncomplete
	}
	p, err := c.s.start(*c.req.Spec, c.req.Again)
	if err != nil {
		return err
	}
	return c.follow(p)
}

func (c *call) follow(p *process) error {
	at := wire.Offsets{}
	if c.req.At != nil {
		at = *c.req.At
	}
	info := p.info()
	if at.Stdout > info.End.Stdout || at.Stderr > info.End.Stderr {
		return fault.New(fault.Invalid, "process %s has written %d and %d bytes; offsets %d and %d are beyond",
			p.spec.ID, info.End.Stdout, info.End.Stderr, at.Stdout, at.Stderr)
	}
	r, err := p.join(c.req.Reader, at) // before the answer, so that whoever is answered later has come later
	if err != nil {
		return err
	}
	if err := c.reply(wire.Reply{Process: &info}); err != nil {
		p.leave(r, true)
		return err
	}
	p.follow(c.stream, c.frames, r, c.session.IsClosed)
	return nil
}

// wait answers when the process is over, or gives up when the node does.
func (c *call) wait(p *process) error {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = c.frames.Next() // nothing is to come: it returns when the node closes the stream
	}()
	select {
	case <-p.done:
		p.mu.Lock()
		x := *p.exit
		p.mu.Unlock()
		err := c.reply(wire.Reply{Exit: &x})
		_ = c.stream.Close()
		<-left
		return err
	case <-left:
		return nil
	}
}

// stdin takes input until it ends, another stream takes over, or the process closes it.
func (c *call) stdin(p *process) error {
	writer, accepted, err := p.stdin.begin()
	if err != nil {
		return err
	}
	if err := c.reply(wire.Reply{Accepted: accepted}); err != nil {
		return err
	}
	for {
		f, err := c.frames.Next()
		if err != nil {
			return nil
		}
		switch f.Type {
		case wire.TypeStdin:
			offset, data, err := f.Offset()
			if err != nil {
				return nil
			}
			if accepted, err = p.stdin.write(writer, offset, data); err != nil {
				return err
			}
			err = wire.WriteOffsets(c.stream, wire.TypeAccepted, accepted)
			if err != nil {
				return nil
			}
		case wire.TypeEOF:
			if err := p.stdin.end(writer); err == errStolen {
				return err
			} else if err != nil {
				return errStdinClosed
			}
			return c.reply(wire.Reply{Accepted: accepted})
		default:
			return nil
		}
	}
}
