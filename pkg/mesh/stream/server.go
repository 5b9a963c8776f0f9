package stream

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
)

// maxPerCaller bounds the streams that one principal may have open at one endpoint of one process.
const maxPerCaller = 128

// Handler serves one stream. Its result, or the code and sentence of its error, is the stream's last
// word; channels that it leaves open are ended for it. ctx ends when the client is gone, or when the
// service stops; the session is over then.
type Handler[Req, Res any] func(ctx context.Context, by mesh.Caller, req Req, s *Session) (Res, error)

// Op is an operation whose request opens a stream. It is served beside others by ServeReq, ServeSandbox
// or ServeNode of the same connection c. (The int plane's exports allow one reply, so it has no streams
// across accounts.)
func Op[Req, Res any](c *mesh.Conn, name string, fn Handler[Req, Res], opts ...Option) mesh.Endpoint {
	srv := &server{nc: c.NATS(), settings: settingsOf(opts), perCaller: map[mesh.Caller]int{}, ids: map[string]bool{}}
	return mesh.Raw(name, func(ctx context.Context, by mesh.Caller, m *nats.Msg) error {
		req, err := mesh.Decode[Req](m.Data)
		if err != nil {
			return err
		}
		return srv.serve(ctx, by, m, func(ctx context.Context, s *Session) (any, error) { return fn(ctx, by, req, s) })
	})
}

// Option changes how a side of a stream behaves.
type Option func(*settings)

type settings struct {
	timing Timing
	silent []string
	speaks bool
}

// WithTiming sets the timing of one side.
func WithTiming(t Timing) Option { return func(s *settings) { s.timing = t } }

// Silent says that a client sends nothing on these channels, which spares it to say so with a frame for each.
func Silent(channels ...string) Option { return func(s *settings) { s.silent = channels } }

// SpeaksFirst says that a handler sends something at once. That then tells the client that its stream is open, too; if the
// handler says nothing for a few milliseconds after all, the client is told.
func SpeaksFirst() Option { return func(s *settings) { s.speaks = true } }

func settingsOf(opts []Option) settings {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	return s
}

// server is what the streams of one endpoint share.
type server struct {
	nc       *nats.Conn
	settings settings

	mu        sync.Mutex
	perCaller map[mesh.Caller]int
	ids       map[string]bool // subjects of open streams
}

func (srv *server) admit(by mesh.Caller, subject string) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	switch {
	case srv.ids[subject]:
		return fault.New(fault.Conflict, "this stream is open already; choose another id")
	case srv.perCaller[by] >= maxPerCaller:
		return fault.New(fault.Exhausted, "%s has %d streams open here; close some first", by.Principal, maxPerCaller)
	}
	srv.ids[subject] = true
	srv.perCaller[by]++
	return nil
}

func (srv *server) leave(by mesh.Caller, subject string) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.ids, subject)
	if srv.perCaller[by]--; srv.perCaller[by] <= 0 {
		delete(srv.perCaller, by)
	}
}

// serve runs one stream to its end. An error before it is opened is answered by the mesh; later ones
// have gone over the stream, and the mesh logs and counts them.
func (srv *server) serve(ctx context.Context, by mesh.Caller, m *nats.Msg, fn func(context.Context, *Session) (any, error)) error {
	id := m.Header.Get(HeaderID)
	if m.Header.Get(HeaderFrame) != frameOpen {
		return fault.New(fault.Invalid, "this operation is a byte stream: open it with the headers %s: %s and %s", HeaderFrame, frameOpen, HeaderID)
	}
	subject, err := Subject(m.Subject, id)
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	if err := srv.admit(by, subject); err != nil {
		return err
	}
	defer srv.leave(by, subject)

	l := &serverLink{nc: srv.nc, reply: m.Reply}
	s := newSession(id, false, l, srv.settings.timing)
	sub, err := srv.nc.Subscribe(subject, func(m *nats.Msg) { s.fromClient(l, m) })
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the service is stopping; try again")
	}
	_ = sub.SetPendingLimits(pendingMessages, pendingBytes)
	defer func() { _ = sub.Unsubscribe() }()
	if err := s.inputsEnded(m.Header.Get(HeaderEnded)); err != nil {
		return err
	}
	if srv.settings.speaks {
		s.sayOpenedLater(subject)
	} else if err := s.sayOpened(subject); err != nil {
		return err
	}
	defer s.endMapping(l)
	return s.serve(ctx, srv.nc, fn)
}

// serve runs the handler of an opened stream and stays until the client has everything.
func (s *Session) serve(ctx context.Context, nc *nats.Conn, fn func(context.Context, *Session) (any, error)) (err error) {
	up := nc.StatusChanged(nats.CONNECTED)
	work, cancel := context.WithCancel(ctx)
	go func() {
		s.run(up)
		cancel()
		nc.RemoveStatusListener(up)
		close(s.stopped)
	}()
	release := context.AfterFunc(ctx, func() {
		s.fail(fault.New(fault.Unavailable, "the service is stopping; open the stream again"))
	})
	defer func() { // also when the handler panics: nothing may stay behind
		release()
		s.fail(fault.New(fault.Internal, "internal error; the service's log has the cause"))
		<-s.stopped
	}()
	v, err := fn(work, s)
	s.finish(v, err)
	<-s.done
	return err
}

// fromClient takes what arrives at the stream's subject. A frame with a reply subject makes that the
// address of the client from now on.
func (s *Session) fromClient(l *serverLink, m *nats.Msg) {
	if m.Reply != "" {
		if !answerable(m.Reply) {
			return
		}
		s.mu.Lock()
		l.reply = m.Reply
		s.mu.Unlock()
	}
	s.receive(m)
}

// answerable reports whether frames may be sent to reply: an inbox, or what the NATS server maps to one.
// Anything else would let a caller write where it may not.
func answerable(reply string) bool {
	return strings.HasPrefix(reply, "_INBOX.") || strings.HasPrefix(reply, "_R_.")
}

// serverLink answers to the newest reply subject. Its reply is guarded by the session's lock.
type serverLink struct {
	nc    *nats.Conn
	reply string
}

func (l *serverLink) send(m *nats.Msg, _ bool) error {
	m.Subject, m.Reply = l.reply, ""
	return publish(l.nc, m)
}

// sayOpened tells the client that its stream is there, and where to send.
func (s *Session) sayOpened(subject string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.send(message(frameOpened, opened{Subject: subject, Window: Window}), false)
}

// openedWithin is how long a handler that speaks first may take until the client is told that it was heard.
const openedWithin = 5 * time.Millisecond

// sayOpenedLater tells it when the handler has said nothing until then. run sees to it.
func (s *Session) sayOpenedLater(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openBy, s.subject = time.Now().Add(openedWithin), subject
}

// inputsEnded takes the channels on which the client sends nothing.
func (s *Session) inputsEnded(names string) error {
	if names == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range strings.SplitSeq(names, ",") {
		c, err := s.channel(name)
		if err == nil {
			err = c.in.ends(endEOF, 0)
		}
		if err != nil {
			return fault.New(fault.Invalid, "the header %s: %v", HeaderEnded, err)
		}
		c.in.toldEnd = true // the client knows
	}
	return nil
}

// endMapping frees the NATS server's mapping of the reply subject: an empty message does.
func (s *Session) endMapping(l *serverLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = l.send(&nats.Msg{}, false) // otherwise it expires
}
