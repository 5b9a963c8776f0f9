package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
)

// openTimeout bounds the wait for a stream to be opened, whatever the caller's context allows.
const openTimeout = 10 * time.Second

// Pending limits of a stream's subscription: what the windows of all channels need, twice over. What
// a sender that breaks the rules puts on top is dropped.
const (
	pendingMessages = 16 << 10
	pendingBytes    = 2 * MaxChannels * Window
)

// Open opens a stream at subject, the subject of an operation, with req as JSON. ctx holds for the whole
// stream: when it ends, so does the stream, and the handler's context with it. Close it in any case.
//
// The error is a *fault.Error: denied if the server does not let the request through, unavailable if
// nobody serves it, or what the operation answered. A stream is opened at most once: Open never repeats.
func Open(ctx context.Context, c *mesh.Conn, subject string, req any, opts ...Option) (*Session, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the request can't be written as JSON")
	}
	id := schemas.NewID()
	to, err := Subject(subject, id)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	nc := c.NATS()
	l := &clientLink{nc: nc, subject: to, inbox: nc.NewInbox()}
	set := settingsOf(opts)
	s := newSession(id, true, l, set.timing)
	sub, err := nc.Subscribe(l.inbox, s.fromServer)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the connection to the mesh is closed")
	}
	_ = sub.SetPendingLimits(pendingMessages, pendingBytes)
	up := nc.StatusChanged(nats.CONNECTED)
	release := s.stopWith(ctx)
	go func() {
		s.run(up)
		release()
		nc.RemoveStatusListener(up)
		_ = sub.Unsubscribe()
		close(s.stopped)
	}()
	before := nc.LastError()
	m := &nats.Msg{Subject: subject, Reply: l.inbox, Data: body, Header: nats.Header{HeaderFrame: {frameOpen}, HeaderID: {id}}}
	if len(set.silent) > 0 {
		m.Header.Set(HeaderEnded, strings.Join(set.silent, ","))
		s.silent(set.silent)
	}
	mesh.Inject(ctx, m.Header)
	if t, ok := ctx.Deadline(); ok {
		m.Header.Set(schemas.HeaderDeadline, strconv.FormatInt(max(time.Until(t).Milliseconds(), 1), 10))
	}
	if err = nc.PublishMsg(m); err == nil {
		err = s.awaitOpen(nc, subject, before)
	}
	if err != nil {
		_ = s.Close()
		return nil, openFault(err, subject)
	}
	return s, nil
}

// silent ends channels on which nothing is sent. The server knows it from the header; one that is older hears of it when
// nothing was said for a while.
func (s *Session) silent(channels []string) {
	for _, name := range channels {
		c := s.Channel(name)
		s.mu.Lock()
		c.out.end, c.out.told, c.out.ended = endEOF, true, true
		s.mu.Unlock()
	}
}

func openFault(err error, subject string) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.Wrap(err, fault.Unavailable, "the stream at %s could not be opened", subject)
}

// awaitOpen waits for the first frame. The server tells of a denied publish on the connection, not in
// a reply; the error that was there before does not count.
func (s *Session) awaitOpen(nc *nats.Conn, subject string, before error) error {
	limit := time.NewTimer(openTimeout)
	defer limit.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-s.opened:
			return nil
		case <-s.done:
			select {
			case <-s.opened: // it is over already, and that is for the readers to find out
				return nil
			default:
				return s.Err()
			}
		case <-limit.C:
			return fault.New(fault.Deadline, "no answer on %s within %s", subject, openTimeout)
		case <-look.C:
			if err := nc.LastError(); err != before && deniedPublish(err, subject) {
				return fault.Wrap(err, fault.Denied, "this user may not publish to %s", subject)
			}
		}
	}
}

func deniedPublish(err error, subject string) bool {
	return err != nil && errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`)
}

// fromServer takes what arrives at the client's inbox.
func (s *Session) fromServer(m *nats.Msg) {
	if m.Header.Get(HeaderFrame) != "" {
		s.receive(m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := false
	select {
	case <-s.opened:
		opened = true
	default:
	}
	code := m.Header.Get(schemas.HeaderErrorCode)
	switch {
	case s.over:
	case m.Header.Get("Status") == "503" && opened:
		s.nobody()
	case m.Header.Get("Status") == "503":
		s.end(fault.New(fault.Unavailable, "nobody answers; is the service, or the sandbox, running?"))
	case code != "" && !opened:
		s.end(fault.FromWire(code, m.Header.Get(schemas.HeaderError)))
	}
}

// clientLink publishes to the stream's subject.
type clientLink struct {
	nc             *nats.Conn
	subject, inbox string
}

func (l *clientLink) send(m *nats.Msg, answer bool) error {
	m.Subject = l.subject
	if answer {
		m.Reply = l.inbox
	}
	return publish(l.nc, m)
}

// publish sends only while the connection is up. The client library would keep the frames otherwise,
// and send them before those that are sent again anyway.
func publish(nc *nats.Conn, m *nats.Msg) error {
	if !nc.IsConnected() {
		if nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		return nats.ErrDisconnected
	}
	return nc.PublishMsg(m)
}

// Subject is where a client sends the frames of the stream id that it opened at subject.
func Subject(subject, id string) (string, error) {
	if _, err := schemas.ParseSubject(subject); err != nil {
		return "", err
	}
	if err := schemas.CheckID("stream id", id); err != nil {
		return "", err
	}
	return subject[:strings.LastIndexByte(subject, '.')] + ".s." + id, nil
}
