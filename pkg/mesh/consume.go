package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// ConsumeOptions bound a consumer's work.
type ConsumeOptions struct {
	Service, Name string        // for metrics and traces
	Concurrency   int           // messages handled at once; 1 keeps their order; 1 if 0
	Timeout       time.Duration // of one handling; 30 s if 0. Keep it under the consumer's AckWait.
	Batch         int           // messages fetched ahead; Concurrency if 0
	// MaxDeliver is after how many deliveries a message goes to the dead letters; 0 is never.
	MaxDeliver uint64
}

// Delivery is one message of a consumer.
type Delivery struct {
	Subject  string
	Header   nats.Header
	Data     []byte
	Sequence uint64 // in its stream
	Time     time.Time
	Tries    uint64 // from 1
	Stream   string
}

// Dead marks an error whose message can never be handled: it goes to the dead letters.
func Dead(err error) error { return &deadError{err} }

type deadError struct{ err error }

func (e *deadError) Error() string { return e.err.Error() }
func (e *deadError) Unwrap() error { return e.err }

// Consume handles the consumer's messages until ctx ends, and returns when the last handler has. Each
// message is settled exactly once by what the handler returns: nil acknowledges it, Dead (or too many
// tries) moves it to the dead letters, any other error has it delivered again after a growing delay.
func (c *Conn) Consume(ctx context.Context, cons jetstream.Consumer, o ConsumeOptions, handle func(ctx context.Context, d Delivery) error) error {
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Batch == 0 {
		o.Batch = o.Concurrency
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(o.Batch), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return wrapNATS(err, o.Name)
	}
	stopped := context.AfterFunc(ctx, it.Stop)
	defer stopped()
	defer it.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, o.Concurrency)
	for {
		m, err := it.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return ctx.Err()
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout):
			continue // the server is away; the iterator asks again
		case err != nil:
			return wrapNATS(err, o.Name)
		}
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			c.settle(ctx, o, m, handle)
		}()
	}
}

// settle handles one message and gives it exactly one of ack, nak with delay, terminate.
func (c *Conn) settle(ctx context.Context, o ConsumeOptions, m jetstream.Msg, handle func(context.Context, Delivery) error) {
	start := time.Now()
	d := Delivery{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
	if md, err := m.Metadata(); err == nil {
		d.Sequence, d.Time, d.Tries, d.Stream = md.Sequence.Stream, md.Timestamp, md.NumDelivered, md.Stream
	}
	hctx, end := Span(Extract(ctx, d.Header), o.Service+" "+o.Name)
	hctx, cancel := context.WithTimeout(hctx, o.Timeout)
	err := handle(hctx, d)
	cancel()
	end(err)
	c.metrics.observe(o.Service, o.Name, err, time.Since(start))
	var dead *deadError
	switch {
	case err == nil:
		err = m.DoubleAck(context.WithoutCancel(ctx))
		if err != nil {
			c.log.Debug("acknowledgement not confirmed; the message will come again", "consumer", o.Name, "err", err)
		}
	case errors.As(err, &dead), o.MaxDeliver > 0 && d.Tries >= o.MaxDeliver:
		c.bury(ctx, o, m, d, err)
	default:
		if ctx.Err() == nil {
			c.log.Warn("message handled later", "consumer", o.Name, "subject", d.Subject, "tries", d.Tries, "err", err)
		}
		_ = m.NakWithDelay(retryDelay(d.Tries))
	}
}

// retryDelay grows from 100 ms to 30 s, doubling.
func retryDelay(tries uint64) time.Duration {
	d := 100 * time.Millisecond
	for i := uint64(1); i < tries && d < 30*time.Second; i++ {
		d *= 2
	}
	return min(d, 30*time.Second)
}

// Headers of a dead letter: where it came from and why it lies there.
const (
	HeaderDeadSubject = "Weft-Dead-Subject"
	HeaderDeadStream  = "Weft-Dead-Stream"
	HeaderDeadReason  = "Weft-Dead-Reason"
)

// bury puts the message into the dead letters and only then takes it off its stream.
func (c *Conn) bury(ctx context.Context, o ConsumeOptions, m jetstream.Msg, d Delivery, cause error) {
	tenant := "system"
	if s, err := schemas.ParseSubject(d.Subject); err == nil && s.Tenant != "" {
		tenant = s.Tenant
	}
	h := nats.Header{}
	for k, v := range d.Header {
		h[k] = v
	}
	for _, k := range []string{jetstream.MsgIDHeader, jetstream.ExpectedLastSubjSeqHeader} {
		h.Del(k)
	}
	h.Set(HeaderDeadSubject, d.Subject)
	h.Set(HeaderDeadStream, d.Stream)
	_, text := fault.Public(cause)
	h.Set(HeaderDeadReason, oneLine(text))
	subject, err := schemas.DLQ(tenant, o.Name)
	if err == nil {
		pctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		_, err = c.PublishMsg(pctx, &nats.Msg{Subject: subject, Header: h, Data: d.Data})
		cancel()
	}
	if err != nil {
		c.log.Error("dead letter not stored; trying again", "subject", d.Subject, "err", err)
		_ = m.NakWithDelay(retryDelay(d.Tries))
		return
	}
	c.log.Warn("dead letter", "subject", d.Subject, "reason", text)
	_ = m.Term()
}
