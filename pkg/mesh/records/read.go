package records

import (
	"context"
	"encoding/json"
	"errors"
	"net/textproto"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
)

// JetStream's error codes that a reader meets.
const (
	jsNoMessage      = 10037
	jsStreamNotFound = 10059
)

type apiError struct {
	ErrCode     uint16 `json:"err_code"`
	Description string `json:"description"`
}

// lastReply is the stream API's answer with one stored message.
type lastReply struct {
	Message *struct {
		Subject  string    `json:"subject"`
		Sequence uint64    `json:"seq"`
		Header   []byte    `json:"hdrs"`
		Data     []byte    `json:"data"`
		Time     time.Time `json:"time"`
	} `json:"message"`
	Error *apiError `json:"error"`
}

// last asks the stream's leader for a subject's last message; nil if there is none.
func (s *Store[T]) last(ctx context.Context, tenant, subject string) (*message, error) {
	r, err := mesh.Request[lastReply](ctx, s.c, "$JS.API.STREAM.MSG.GET."+Stream(tenant), map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	if r.Error != nil {
		switch r.Error.ErrCode {
		case jsNoMessage:
			return nil, nil
		case jsStreamNotFound:
			return nil, fault.New(fault.NotFound, "no tenant %q", tenant)
		}
		return nil, fault.Wrap(errors.New(r.Error.Description), fault.Unavailable, "the log of tenant %q can't be read now", tenant)
	}
	m := &message{subject: r.Message.Subject, data: r.Message.Data, seq: r.Message.Sequence, time: r.Message.Time}
	if m.header, err = nats.DecodeHeadersMsg(r.Message.Header); err != nil && !errors.Is(err, textproto.ProtocolError("")) {
		return nil, err
	}
	return m, nil
}

func (s *Store[T]) purge(ctx context.Context, tenant, subject string) error {
	r, err := mesh.Request[struct {
		Error *apiError `json:"error"`
	}](ctx, s.c, "$JS.API.STREAM.PURGE."+Stream(tenant), map[string]string{"filter": subject})
	if err != nil {
		return err
	}
	if r.Error != nil && r.Error.ErrCode != jsStreamNotFound {
		return fault.Wrap(errors.New(r.Error.Description), fault.Unavailable, "the log of tenant %q can't be purged now", tenant)
	}
	return nil
}

// List gives the present state of every record of a workspace, or of all with "*", in the order of
// their last change. A tenant that doesn't exist has none.
func (s *Store[T]) List(ctx context.Context, tenant, workspace string) ([]Record[T], error) {
	subject, err := s.filter(tenant, workspace)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, tenant, subject, jetstream.DeliverLastPerSubjectPolicy)
}

// History gives every state of a record, oldest first.
func (s *Store[T]) History(ctx context.Context, k Key) ([]Record[T], error) {
	subject, err := s.subject(k)
	if err != nil {
		return nil, err
	}
	rs, err := s.read(ctx, k.Tenant, subject, jetstream.DeliverAllPolicy)
	if err == nil && len(rs) == 0 {
		return nil, s.notFound(k)
	}
	return rs, err
}

// read runs an ephemeral consumer over what is there now.
func (s *Store[T]) read(ctx context.Context, tenant, subject string, from jetstream.DeliverPolicy) ([]Record[T], error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cons, err := s.c.JetStream().CreateConsumer(ctx, Stream(tenant), jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: from, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil
		}
		return nil, fault.Wrap(err, fault.Unavailable, "the log of tenant %q can't be read now", tenant)
	}
	info := cons.CachedInfo()
	defer func() {
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = s.c.JetStream().DeleteConsumer(dctx, Stream(tenant), info.Name)
	}()
	var out []Record[T]
	for left := info.NumPending; left > 0; {
		b, err := cons.Fetch(int(min(left, 2000)), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "the log of tenant %q can't be read now", tenant)
		}
		n := uint64(0)
		for m := range b.Messages() {
			n++
			if out, err = s.collect(out, m); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(b.Error(), ctx.Err()); err != nil && n == 0 {
			return nil, fault.Wrap(err, fault.Unavailable, "the log of tenant %q can't be read now", tenant)
		}
		if n == 0 {
			break // purged in the meantime
		}
		left -= min(n, left)
	}
	return out, nil
}

func (s *Store[T]) collect(out []Record[T], m jetstream.Msg) ([]Record[T], error) {
	msg, err := fromJetStream(m)
	if err != nil {
		return out, err
	}
	r, err := decode[T](s.entity, s.schema, msg)
	if errors.Is(err, errForeign) {
		return out, nil
	}
	if err != nil {
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			s.c.Logger().Error("unreadable record", "err", err)
			return out, nil
		}
		return out, err
	}
	return append(out, r), nil
}
