package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
)

// Ack is the server's word that a message is stored: the promise that it is not lost.
type Ack struct {
	Stream    string
	Sequence  uint64
	Duplicate bool // a message with the same id was stored just before; this one was not
}

// pubAck is the acknowledgement as JetStream writes it.
type pubAck struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     uint16 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// Publish stores v as JSON on subject and waits for the acknowledgement. Header may be nil. It needs no
// JetStream permission: the stream of the account that captures the subject answers.
func (c *Conn) Publish(ctx context.Context, subject string, v any, h nats.Header) (Ack, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Ack{}, fault.Wrap(err, fault.Invalid, "the message can't be written as JSON")
	}
	return c.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: h, Data: b})
}

// PublishMsg stores a message as it is and waits for the acknowledgement.
func (c *Conn) PublishMsg(ctx context.Context, m *nats.Msg) (Ack, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	Inject(ctx, m.Header)
	r, err := c.roundTrip(ctx, m)
	if err != nil {
		return Ack{}, err
	}
	return readAck(r.Data, m.Subject)
}

func readAck(b []byte, subject string) (Ack, error) {
	var a pubAck
	if err := json.Unmarshal(b, &a); err != nil {
		return Ack{}, fault.Wrap(err, fault.Internal, "no acknowledgement came on %s", subject)
	}
	if a.Error != nil {
		return Ack{}, ackFault(a.Error.ErrCode, a.Error.Description)
	}
	return Ack{Stream: a.Stream, Sequence: a.Sequence, Duplicate: a.Duplicate}, nil
}

// JetStream's error codes that mean something to a publisher.
const (
	jsWrongLastSequence         = 10071
	jsWrongLastSequenceConstant = 10164
	jsStreamStoreFailed         = 10077
	jsMessageTooLarge           = 10054
)

func ackFault(code uint16, text string) error {
	cause := errors.New(text)
	switch code {
	case jsWrongLastSequence, jsWrongLastSequenceConstant:
		return fault.Wrap(cause, fault.Conflict, "it was changed in the meantime")
	case jsStreamStoreFailed: // DiscardNew: maximum messages or bytes
		return fault.Wrap(cause, fault.Exhausted, "the stream is full; nothing was accepted, try again later")
	case jsMessageTooLarge:
		return fault.Wrap(cause, fault.Invalid, "the message is too large; put larger input into a file of the workspace")
	}
	return fault.Wrap(cause, fault.Unavailable, "the message was not stored: %s", text)
}

// PublishAsync stores a message without waiting. The future tells when it is stored; at most 4096 are
// in flight, then it waits.
func (c *Conn) PublishAsync(m *nats.Msg, opts ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	return c.js.PublishMsgAsync(m, opts...)
}

// AsyncFault gives the failure for an error of a future.
func AsyncFault(err error, subject string) error {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return ackFault(uint16(api.ErrorCode), api.Description)
	}
	return wrapNATS(err, subject)
}

// ExpectLast makes a publish a compare-and-set on its subject: it is stored only if the subject's last
// message has sequence seq, 0 for none.
func ExpectLast(h nats.Header, seq uint64) {
	h.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10))
}
