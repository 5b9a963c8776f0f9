package manager

import (
	"context"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
	"github.com/weftmesh/weft/services/workspace-manager/internal/trigger"
)

// cause is what made a trigger start.
type cause struct {
	stream    string // "msg" or "log"
	sequence  uint64 // in it: what makes the started task's key
	principal string // who sent, or as whom the task ran
	task      string // that sent, or that changed
	group     *workspace.Group
	body      []byte
	depth     int // at which the sender stands
	at        time.Time
}

// message starts the triggers that a message matches. A message that is delivered again finds the task
// that it started.
func (v *view) message(ctx context.Context, d mesh.Delivery) error {
	s, err := schemas.ParseSubject(d.Subject)
	if err != nil || s.Plane != schemas.PlaneMsg || s.Tenant != v.tenant {
		return mesh.Dead(fault.New(fault.Invalid, "not a subject for messages: %s", d.Subject))
	}
	for _, tr := range v.triggers.in(s.Workspace) {
		if !trigger.MatchMessage(&tr.Value, s.To, s.Principal) {
			continue
		}
		group, err := trigger.ParseGroup(d.Header.Get(workspace.HeaderGroup), d.Header.Get(workspace.HeaderGroupSize))
		if err != nil {
			return mesh.Dead(fault.New(fault.Invalid, "the message's group can't be read: %v", err))
		}
		task := d.Header.Get(workspace.HeaderTask)
		depth, _ := strconv.Atoi(d.Header.Get(workspace.HeaderDepth))
		c := cause{stream: "msg", sequence: d.Sequence, principal: s.Principal, task: task, group: group, body: d.Data,
			depth: max(depth, v.tasks.depth(s.Workspace, s.Principal, task)), at: d.Time}
		if err := v.fire(ctx, s.Workspace, &tr.Value, c); err != nil {
			return err
		}
	}
	return nil
}

// eventTriggers starts the triggers that an event of a task matches.
func (v *view) eventTriggers(ctx context.Context, r records.Record[workspace.Task]) error {
	for _, tr := range v.triggers.in(r.Workspace) {
		if !trigger.MatchEvent(&tr.Value, r.Event, &r.Value) {
			continue
		}
		c := cause{stream: "log", sequence: r.Sequence, principal: r.Value.Submission.Agent, task: r.ID,
			group: r.Value.Submission.Group, depth: r.Value.Depth, at: r.Time}
		if err := v.fire(ctx, r.Workspace, &tr.Value, c); err != nil {
			return err
		}
	}
	return nil
}

// fire starts a trigger's task for a cause, or has it join its group.
func (v *view) fire(ctx context.Context, ws string, tr *workspace.Trigger, c cause) error {
	if tr.Gather {
		if c.group == nil {
			return nil // it belongs to no group, so there is nothing to wait for
		}
		return v.gather(ctx, ws, tr, c)
	}
	in := workspace.TriggerInput{Trigger: tr.Name, Group: c.group}
	if c.stream == "msg" {
		in.Messages, in.Sequences = []json.RawMessage{asJSON(c.body)}, []uint64{c.sequence}
	}
	if c.task != "" && schemas.CheckID("task", c.task) == nil {
		in.Tasks = []string{c.task}
	}
	_, err := v.startTriggered(ctx, ws, tr, submission.TriggerKey(tr.Name, c.stream, c.sequence), in, c)
	return err
}

// startTriggered writes the task that a trigger starts, under a key that only this cause has, and gives
// its id. It is submitted by who caused it, one deeper.
func (v *view) startTriggered(ctx context.Context, ws string, tr *workspace.Trigger, key string, in workspace.TriggerInput, c cause) (string, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	sub := tr.Start
	sub.Input = b
	t := workspace.Task{Tenant: v.tenant, Workspace: ws, Key: key, Principal: c.principal, Submission: sub,
		Trigger: tr.Name, Depth: c.depth + 1, CreatedAt: c.at.UTC(), Traceparent: mesh.Traceparent(ctx)}
	if err := v.accept(ctx, &t); err != nil {
		return "", err
	}
	failpoint.Hit(fpTriggerBeforeSubmit)
	_, err = v.createTask(ctx, &t)
	return t.ID, err
}

// asJSON gives a message's body as a JSON value: itself if it is one, else a string.
func asJSON(body []byte) json.RawMessage {
	if json.Valid(body) && utf8.Valid(body) {
		return body
	}
	b, _ := json.Marshal(string(body)) // a string can always be written
	return b
}
