package manager

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
	"github.com/weftmesh/weft/services/workspace-manager/internal/trigger"
)

// maxInput bounds what a triggered task finds of the messages' bodies, so that its record stays small.
const maxInput = schemas.MaxSubmission / 2

// gather has a cause join its group and starts the trigger's task when the last has come. The group's
// record is written first, then the task under the group's key, then the record is marked: killed
// between any two, the cause is delivered again and the next step is done. A group starts one task;
// what comes after that changes nothing, until the gather's record has expired with Retention.
func (v *view) gather(ctx context.Context, ws string, tr *workspace.Trigger, c cause) error {
	k := records.Key{Tenant: v.tenant, Workspace: ws, ID: schemas.DerivedID("gather", tr.Name, c.group.ID)}
	m := v.member(ws, c)
	complete := false
	r, err := v.s.stores.gathers.Put(ctx, k, func(g *workspace.Gather, exists bool) (string, error) {
		if !exists {
			*g = workspace.Gather{Trigger: tr.Name, Group: *c.group}
		}
		var changed bool
		if changed, complete = trigger.Join(g, m, c.depth); !changed {
			return "", nil
		}
		g.At = v.s.cfg.Now().UTC()
		return "waiting", nil
	})
	if err != nil {
		return err
	}
	failpoint.Hit(fpGatherAfterRecord)
	if !complete || r.Value.Task != "" {
		return nil
	}
	in, err := v.gathered(ctx, &r.Value)
	if err != nil {
		return err
	}
	c.depth = r.Value.Depth
	id, err := v.startTriggered(ctx, ws, tr, submission.GatherKey(k.ID), in, c)
	if err != nil {
		return err
	}
	failpoint.Hit(fpGatherBeforeFired)
	_, err = v.s.stores.gathers.Update(ctx, k, func(g *workspace.Gather) (string, error) {
		if g.Task != "" {
			return "", nil
		}
		g.Task, g.At = id, v.s.cfg.Now().UTC()
		return "fired", nil
	})
	return err
}

// member says who counts as one: a task, whichever of its attempts says it, where the sender names one
// of its own; else the message by itself.
func (v *view) member(ws string, c cause) workspace.GatherMember {
	m := workspace.GatherMember{Member: c.task, Task: c.task}
	if c.stream == "log" {
		return m
	}
	m.Sequence = c.sequence
	t, ok := v.tasks.get(records.Key{Tenant: v.tenant, Workspace: ws, ID: c.task})
	if !ok || t.Principal != c.principal {
		m.Task, m.Member = "", submission.TriggerKey("", "msg", c.sequence)
	}
	return m
}

// gathered reads what the members brought.
func (v *view) gathered(ctx context.Context, g *workspace.Gather) (workspace.TriggerInput, error) {
	in := workspace.TriggerInput{Trigger: g.Trigger, Group: &g.Group}
	messages, err := v.s.js.Stream(ctx, "MSG-"+v.tenant)
	if err != nil {
		return in, err
	}
	size := 0
	for _, m := range g.Members {
		if m.Task != "" {
			in.Tasks = append(in.Tasks, m.Task)
		}
		if m.Sequence == 0 {
			continue
		}
		in.Sequences = append(in.Sequences, m.Sequence)
		if in.Truncated {
			continue
		}
		body, err := messageBody(ctx, messages, m.Sequence)
		if err != nil {
			return in, err
		}
		if size += len(body) + 1; size > maxInput {
			in.Truncated, in.Messages = true, nil
			continue
		}
		in.Messages = append(in.Messages, body)
	}
	return in, nil
}

// messageBody reads a message; null if it has expired.
func messageBody(ctx context.Context, messages jetstream.Stream, seq uint64) (json.RawMessage, error) {
	m, err := messages.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return json.RawMessage("null"), nil
	}
	if err != nil {
		return nil, err
	}
	return asJSON(m.Data), nil
}
