package supervisor

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const stdinChunk = 32 << 10

// WriteStdin returns when the process's stdin has taken b, exactly once even across reconnects.
// conflict: stdin is closed, was not asked for, or another took it over. After an error, part of b may have been taken.
func (p *Process) WriteStdin(ctx context.Context, b []byte) error {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	if _, err := p.input(ctx); err != nil { // finds out, the first time, how much an earlier writer gave
		return err
	}
	begin := p.written
	for {
		st, err := p.input(ctx)
		if err != nil {
			return err
		}
		if p.written-begin > uint64(len(b)) { // while the connection was broken
			return fault.New(fault.Conflict, "another writer took over the process's standard input")
		}
		if err = p.give(ctx, st, b[p.written-begin:]); err == nil {
			return nil
		}
		_ = st.Close()
		p.stdin = nil
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return err
		}
	}
}

// OpenStdin takes the standard input over from any other writer, and says how many bytes of it were taken so far.
func (p *Process) OpenStdin(ctx context.Context) (uint64, error) {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	_, err := p.input(ctx)
	return p.written, err
}

// StdinTaken is how many bytes the process had taken after the last WriteStdin or OpenStdin.
func (p *Process) StdinTaken() uint64 {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	return p.written
}

// give sends b and waits until all of it was taken.
func (p *Process) give(ctx context.Context, st *stream, b []byte) error {
	defer st.until(ctx)()
	goal := p.written + uint64(len(b))
	for sent := p.written; sent < goal; {
		// Not far ahead: what was sent and not taken has to wait in the sandbox's memory.
		for sent < goal && sent-p.written < 4*stdinChunk {
			n := min(uint64(stdinChunk), goal-sent)
			if err := st.writeAt(sent, b[uint64(len(b))-(goal-sent):][:n]); err != nil {
				return st.failed(ctx, err)
			}
			sent += n
		}
		if err := p.taken(ctx, st); err != nil {
			return err
		}
	}
	for p.written < goal {
		if err := p.taken(ctx, st); err != nil {
			return err
		}
	}
	return nil
}

// taken reads one acknowledgement.
func (p *Process) taken(ctx context.Context, st *stream) error {
	f, err := st.frames.Message()
	if err != nil {
		return st.failed(ctx, err)
	}
	switch f.Type {
	case wire.TypeAccepted:
		at, _, err := f.Offset()
		if err != nil || at < p.written {
			return fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
		}
		p.written = at
		return nil
	case wire.TypeError:
		return decodeError(f)
	}
	return fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
}

func (s *stream) writeAt(offset uint64, b []byte) error {
	frame := make([]byte, wire.HeaderSize+wire.OffsetSize+len(b))
	wire.PutHeader(frame, wire.TypeStdin, wire.OffsetSize+len(b))
	binary.BigEndian.PutUint64(frame[wire.HeaderSize:], offset)
	copy(frame[wire.HeaderSize+wire.OffsetSize:], b)
	_, err := s.Write(frame)
	return err
}

// CloseStdin ends standard input: end of file for a pipe, ^D for a terminal. Closing it twice is no error.
func (p *Process) CloseStdin(ctx context.Context) error {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	for {
		st, err := p.input(ctx)
		if err != nil {
			return err
		}
		stop := st.until(ctx)
		err = wire.WriteFrame(st, wire.TypeEOF, nil)
		if err == nil {
			_, err = st.reply(ctx)
		} else {
			err = st.failed(ctx, err)
		}
		stop()
		if err == nil {
			return nil
		}
		_ = st.Close()
		p.stdin = nil
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return err
		}
	}
}

// input gives the stream that stdin goes through, opening it when there is none.
func (p *Process) input(ctx context.Context) (*stream, error) {
	for p.stdin == nil {
		st, reply, err := p.box.open(ctx, wire.Request{Op: wire.OpStdin, Process: p.id})
		if errors.Is(err, errLost) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		if reply.Accepted < p.written {
			_ = st.Close()
			return nil, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
		}
		p.stdin, p.written = st, reply.Accepted
	}
	return p.stdin, nil
}
