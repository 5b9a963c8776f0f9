package manager

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Events replays the log of a workspace, of the whole tenant with "-", and with Follow goes on live
// until the caller goes away or FollowLimit has passed; the caller then asks again from the sequence
// after the last one it got.
func (s *Service) Events(ctx context.Context, by mesh.Caller, req workspace.EventsRequest, send func(workspace.Change[json.RawMessage]) error) error {
	cfg, err := eventsConsumer(by, req)
	if err != nil {
		return err
	}
	if req.Follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.FollowLimit)
		defer cancel()
	}
	cons, err := s.js.OrderedConsumer(ctx, records.Stream(by.Tenant), cfg)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the log can't be read now; try again")
	}
	if info := cons.CachedInfo(); !req.Follow && info != nil && info.NumPending == 0 {
		return nil
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx)) // as for output
		if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			continue
		}
		md, err := m.Metadata()
		if err != nil {
			continue
		}
		if c, ok := readChange(m, md); ok {
			if err := send(c); err != nil {
				return err
			}
		}
		if md.NumPending == 0 && !req.Follow {
			return nil
		}
	}
}

// readChange reads a message of the log; ok is false for what no service wrote as a record.
func readChange(m jetstream.Msg, md *jetstream.MsgMetadata) (workspace.Change[json.RawMessage], bool) {
	s, err := schemas.ParseSubject(m.Subject())
	entity, event, ok := schemas.ParseEventType(m.Headers().Get(schemas.HeaderType))
	if err != nil || !ok || entity != s.Entity || m.Headers().Get(schemas.HeaderSubject) != m.Subject() || !json.Valid(m.Data()) {
		return workspace.Change[json.RawMessage]{}, false
	}
	return workspace.Change[json.RawMessage]{Event: event, Entity: entity, Workspace: s.Workspace, ID: s.ID, Sequence: md.Sequence.Stream,
		Time: md.Timestamp.UTC(), EventID: m.Headers().Get(schemas.HeaderID), Value: m.Data()}, true
}

func eventsConsumer(by mesh.Caller, req workspace.EventsRequest) (jetstream.OrderedConsumerConfig, error) {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	switch {
	case req.FromSequence > 0 && req.FromTime != nil:
		return cfg, fault.New(fault.Invalid, `give "from_sequence" or "from_time", not both`)
	case req.FromSequence > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, req.FromSequence
	case req.FromTime != nil:
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, req.FromTime
	}
	if len(req.Entities)*max(len(req.IDs), 1) > 256 || len(req.IDs) > 256 {
		return cfg, fault.New(fault.Invalid, "at most 256 entities times ids at once")
	}
	ws := by.Workspace
	if ws == schemas.NoWorkspace {
		ws = "*"
	}
	for what, names := range map[string][]string{"entity": req.Entities, "id": req.IDs} {
		for _, n := range names {
			if err := invalid(schemas.CheckName(what, n)); err != nil {
				return cfg, err
			}
		}
	}
	for _, e := range orAny(req.Entities) {
		for _, id := range orAny(req.IDs) {
			cfg.FilterSubjects = append(cfg.FilterSubjects, schemas.Prefix+"evt."+by.Tenant+"."+ws+"."+e+"."+id)
		}
	}
	return cfg, nil
}

func orAny(ss []string) []string {
	if len(ss) == 0 {
		return []string{"*"}
	}
	return ss
}
