package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// defaultTimeout bounds a request whose context has no deadline of its own.
const defaultTimeout = 10 * time.Second

// Request asks subject with req as JSON and decodes the answer. The error is a *fault.Error: the
// service's own code, denied if the server did not let the request through, unavailable if nobody
// serves it, deadline if the answer did not come in time.
func Request[Rep any](ctx context.Context, c *Conn, subject string, req any) (Rep, error) {
	var rep Rep
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m, err := newRequest(ctx, subject, req)
	if err != nil {
		return rep, err
	}
	r, err := c.roundTrip(ctx, m)
	if err != nil {
		return rep, err
	}
	if err := replyFault(r); err != nil {
		return rep, err
	}
	if err := json.Unmarshal(r.Data, &rep); err != nil {
		return rep, fault.Wrap(err, fault.Internal, "the answer on %s could not be read", subject)
	}
	return rep, nil
}

// RequestMany asks subject and gives every answer to each, until an empty one ends them, each gives an
// error, or ctx ends. quiet bounds the time between two answers; keepalives count. Who is so slow that
// answers were lost is told so: unavailable, never a gap in silence.
func RequestMany[Rep any](ctx context.Context, c *Conn, subject string, req any, quiet time.Duration, each func(Rep) error) error {
	m, err := newRequest(ctx, subject, req)
	if err != nil {
		return err
	}
	ctx, done := c.untilDenied(ctx, subject)
	m.Reply = c.nc.NewInbox()
	return done(requestMany(ctx, c, m, quiet, each))
}

func requestMany[Rep any](ctx context.Context, c *Conn, m *nats.Msg, quiet time.Duration, each func(Rep) error) error {
	sub, err := c.nc.SubscribeSync(m.Reply)
	if err != nil {
		return wrapNATS(err, m.Subject)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(pendingAnswers, pendingBytes); err != nil {
		return wrapNATS(err, m.Subject)
	}
	if err := c.nc.PublishMsg(m); err != nil {
		return wrapNATS(err, m.Subject)
	}
	return receive(ctx, sub, m.Subject, quiet, each)
}

// untilDenied gives a context that ends when the server denies a publish to subject. done must be called
// with what came of it, and gives the denial in its place if that is why.
func (c *Conn) untilDenied(ctx context.Context, subject string) (_ context.Context, done func(error) error) {
	denied, stop := c.watchDenied(subject)
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-denied:
			cancel(errDenied)
		case <-ctx.Done():
		}
	}()
	return ctx, func(err error) error {
		if err != nil && context.Cause(ctx) == errDenied {
			err = c.deniedFault(subject)
		}
		cancel(nil)
		<-watched
		stop()
		return err
	}
}

// What a slow caller of a many-reply operation may leave lying before answers are lost.
const (
	pendingAnswers = 1 << 18
	pendingBytes   = 256 << 20
)

// receive takes answers until the last.
func receive[Rep any](ctx context.Context, sub *nats.Subscription, subject string, quiet time.Duration, each func(Rep) error) error {
	for {
		wait, cancel := context.WithTimeout(ctx, quiet)
		r, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return fault.New(fault.Unavailable, "nothing came on %s for %s", subject, quiet)
		case errors.Is(err, nats.ErrSlowConsumer):
			return fault.Wrap(err, fault.Unavailable, "answers on %s came faster than they were taken; ask again from the last one", subject)
		case err != nil:
			return wrapNATS(err, subject)
		}
		if r.Header.Get("Status") == "503" {
			return wrapNATS(nats.ErrNoResponders, subject)
		}
		if err := replyFault(r); err != nil {
			return err
		}
		if len(r.Data) == 0 {
			return nil
		}
		if r.Header.Get(headerKeepalive) != "" {
			continue
		}
		var rep Rep
		if err := json.Unmarshal(r.Data, &rep); err != nil {
			return fault.Wrap(err, fault.Internal, "an answer on %s could not be read", subject)
		}
		if err := each(rep); err != nil {
			return err
		}
	}
}

func newRequest(ctx context.Context, subject string, req any) (*nats.Msg, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the request can't be written as JSON")
	}
	m := nats.NewMsg(subject)
	m.Data = b
	Inject(ctx, m.Header)
	if t, ok := ctx.Deadline(); ok {
		m.Header.Set(schemas.HeaderDeadline, strconv.FormatInt(max(time.Until(t).Milliseconds(), 1), 10))
	}
	return m, nil
}

// roundTrip sends one request and waits for its one answer, or for the server's denial.
func (c *Conn) roundTrip(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, done := c.untilDenied(ctx, m.Subject)
	r, err := c.nc.RequestMsgWithContext(ctx, m)
	return r, done(wrapNATS(err, m.Subject))
}

var errDenied = fmt.Errorf("denied by the server")

// replyFault gives the failure that a reply's headers tell of, or nil.
func replyFault(m *nats.Msg) error {
	if m.Header == nil {
		return nil
	}
	if code := m.Header.Get(schemas.HeaderErrorCode); code != "" {
		return fault.FromWire(code, m.Header.Get(schemas.HeaderError))
	}
	return nil
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultTimeout)
}

func faultCode(err error) fault.Code { return fault.CodeOf(err) }
