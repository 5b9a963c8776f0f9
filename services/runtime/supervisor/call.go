package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// stream is one operation in progress.
type stream struct {
	*yamux.Stream
	frames *wire.Reader
}

// errLost means that the connection broke, and the operation's outcome is not known.
var errLost = errors.New("the connection to the sandbox broke")

func lost(err error) error {
	return fault.Wrap(errors.Join(errLost, err), fault.Unavailable, "the connection to the sandbox broke; the outcome is not known")
}

// until makes reads and writes on the stream fail when ctx is done. The returned function ends that
// and must be called.
func (s *stream) until(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	cancel := context.AfterFunc(ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if !cancel() {
			_ = s.SetDeadline(time.Time{})
		}
	}
}

// open sends a request and waits for its reply. What an operation adds on its stream follows.
func (s *Sandbox) open(ctx context.Context, req wire.Request) (*stream, wire.Reply, error) {
	session, err := s.connected(ctx)
	if err != nil {
		return nil, wire.Reply{}, err
	}
	y, err := openStream(session)
	if err != nil {
		return nil, wire.Reply{}, err
	}
	st := &stream{y, wire.NewReader(y)}
	reply, err := st.request(ctx, req)
	if err != nil {
		_ = y.Close()
		return nil, wire.Reply{}, err
	}
	return st, reply, nil
}

// openStream closes a session that can't open any: whoever tries again gets another one.
func openStream(session *yamux.Session) (*yamux.Stream, error) {
	y, err := session.OpenStream()
	if err == nil {
		return y, nil
	}
	if !errors.Is(err, yamux.ErrConnectionWriteTimeout) { // that one may be frozen
		_ = session.Close()
	}
	return nil, lost(err)
}

func (s *stream) request(ctx context.Context, req wire.Request) (reply wire.Reply, err error) {
	defer s.until(ctx)()
	if err := wire.WriteMessage(s, wire.TypeRequest, req); err != nil {
		if errors.Is(err, wire.ErrMessageLong) {
			return reply, fault.Wrap(err, fault.Invalid, "the request is too long; put large input into a file or stdin")
		}
		return reply, s.failed(ctx, err)
	}
	return s.reply(ctx)
}

// reply reads a Reply, or the Error in its place.
func (s *stream) reply(ctx context.Context) (reply wire.Reply, err error) {
	f, err := s.frames.Message()
	if err != nil {
		return reply, s.failed(ctx, err)
	}
	return reply, decodeReply(f, &reply)
}

func decodeReply(f wire.Frame, into *wire.Reply) error {
	switch f.Type {
	case wire.TypeReply:
		if err := f.Decode(into); err != nil {
			return fault.Wrap(err, fault.Internal, "the sandbox's answer is not to be understood")
		}
		return nil
	case wire.TypeError:
		return decodeError(f)
	}
	return fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
}

func decodeError(f wire.Frame) error {
	var e wire.Error
	if err := f.Decode(&e); err != nil {
		return fault.Wrap(err, fault.Internal, "the sandbox's answer is not to be understood")
	}
	return e.Fault()
}

// failed says why reading or writing did not go on.
func (s *stream) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(ctx.Err(), fault.CodeOf(ctx.Err()), "the sandbox did not answer in time")
	}
	if errors.Is(err, wire.ErrFrameType) || errors.Is(err, wire.ErrFrameLength) || errors.Is(err, wire.ErrMessageLong) {
		return fault.Wrap(err, fault.Internal, "the sandbox's answer is not to be understood")
	}
	return lost(err)
}

// ask is for operations with one reply.
func (s *Sandbox) ask(ctx context.Context, req wire.Request) (wire.Reply, error) {
	st, reply, err := s.open(ctx, req)
	if err != nil {
		return reply, err
	}
	_ = st.Close()
	return reply, nil
}

// askAgain is ask for operations that may be done twice: it is repeated as often as connections break.
func (s *Sandbox) askAgain(ctx context.Context, req wire.Request) (wire.Reply, error) {
	for {
		reply, err := s.ask(ctx, req)
		if !errors.Is(err, errLost) || ctx.Err() != nil {
			return reply, err
		}
	}
}
