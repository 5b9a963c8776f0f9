package lifecycle

import (
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Events of a task's record.
const (
	Submitted  = "submitted"
	Rejected   = "rejected"
	Queued     = "queued"
	Running    = "running"
	Progressed = "progress"
	Retrying   = "retrying"
	Cancelling = "cancelling"
	Complete   = "complete"
	Failed     = "error"
	Cancelled  = "cancelled"
)

// Reasons of an exit that the manager itself gives or looks at.
const (
	ReasonExited    = "exited"
	ReasonTimeout   = "timeout"
	ReasonCancelled = "cancelled"
	ReasonNodeLost  = "node-lost"
)

// keptAttempts is how many earlier tries a record keeps.
const keptAttempts = 19

// Holder names an attempt and who says it holds it.
type Holder struct {
	Attempt int
	Node    string
	Sandbox string
	NodeKey string
}

// Admit puts a pending task under its next attempt number.
func Admit(t *workspace.Task, now time.Time) (string, error) {
	if t.State != workspace.Pending {
		return "", fault.New(schemas.Conflict, "task %s is %s, not pending", t.ID, t.State)
	}
	number := t.Attempt.Number + 1
	archive(t)
	t.Attempt = workspace.Attempt{Number: number, QueuedAt: now}
	t.State = workspace.Queued
	t.NotBefore = nil
	return Queued, nil
}

// Claim gives a queued attempt to a node. The same node and sandbox may ask again.
func Claim(t *workspace.Task, h Holder, now time.Time) (string, error) {
	if t.State == workspace.Running && holds(t, h) && t.Attempt.Sandbox == h.Sandbox {
		return "", nil
	}
	if t.State != workspace.Queued || t.Attempt.Number != h.Attempt {
		return "", fault.New(schemas.Conflict, "attempt %d of task %s is not to be had: the task is %s at attempt %d",
			h.Attempt, t.ID, t.State, t.Attempt.Number)
	}
	t.State = workspace.Running
	t.Attempt.Node, t.Attempt.Sandbox, t.Attempt.NodeKey = h.Node, h.Sandbox, h.NodeKey
	t.Attempt.StartedAt = &now
	return Running, nil
}

// Progress notes milestones of a running attempt; each is written once.
func Progress(t *workspace.Task, h Holder, commandAt, firstOutputAt *time.Time) (string, error) {
	if t.State != workspace.Running || !holds(t, h) {
		return "", notHeld(t, h)
	}
	if !note(&t.Attempt, commandAt, firstOutputAt) {
		return "", nil
	}
	return Progressed, nil
}

func note(a *workspace.Attempt, commandAt, firstOutputAt *time.Time) (changed bool) {
	if a.CommandAt == nil && commandAt != nil {
		a.CommandAt, changed = commandAt, true
	}
	if a.FirstOutputAt == nil && firstOutputAt != nil {
		a.FirstOutputAt, changed = firstOutputAt, true
	}
	return changed
}

// Cancel ends a task that does not run at once, and marks one that runs so that its node ends it.
// Asked again it changes nothing; a task that ended otherwise is a conflict.
func Cancel(t *workspace.Task, by string, now time.Time) (string, error) {
	switch {
	case t.State == workspace.Cancelled, t.State == workspace.Running && t.Cancel != "":
		return "", nil
	case t.State.Final():
		return "", fault.New(schemas.Conflict, "task %s has already ended: %s", t.ID, t.State)
	case t.State == workspace.Running:
		t.Cancel = by
		return Cancelling, nil
	}
	t.Cancel = by
	if t.State == workspace.Queued {
		t.Attempt.EndedAt = &now
	}
	return end(t, workspace.Cancelled, nil, now), nil
}

// Verdict says what a node that names h is to do with it: "keep", "stop" or "lost".
func Verdict(t *workspace.Task, h Holder, now time.Time, overrun time.Duration) (verdict, reason string) {
	switch {
	case t.State != workspace.Running || !holds(t, h):
		return workspace.VerdictLost, "the task is " + string(t.State)
	case t.Cancel != "":
		return workspace.VerdictStop, ReasonCancelled
	case Overdue(t, now, overrun):
		return workspace.VerdictStop, ReasonTimeout
	}
	return workspace.VerdictKeep, ""
}

// Overdue reports whether a running attempt is past its own time limit by more than slack. The node
// ends a command at its limit; the manager steps in only where the node did not.
func Overdue(t *workspace.Task, now time.Time, slack time.Duration) bool {
	if t.State != workspace.Running || t.Run == nil || t.Run.TimeoutMS <= 0 || t.Attempt.StartedAt == nil {
		return false
	}
	from := *t.Attempt.StartedAt
	if t.Attempt.CommandAt != nil {
		from = *t.Attempt.CommandAt
	}
	return now.After(from.Add(time.Duration(t.Run.TimeoutMS)*time.Millisecond + slack))
}

// holds reports whether h is the current attempt on the node that has it.
func holds(t *workspace.Task, h Holder) bool {
	return t.Attempt.Number == h.Attempt && t.Attempt.Node == h.Node && h.Node != ""
}

func notHeld(t *workspace.Task, h Holder) error {
	return fault.New(schemas.Conflict, "attempt %d of task %s is not held by node %s: the task is %s at attempt %d",
		h.Attempt, t.ID, h.Node, t.State, t.Attempt.Number)
}

// archive moves an ended attempt to the earlier ones.
func archive(t *workspace.Task) {
	if t.Attempt.Number == 0 {
		return
	}
	t.Previous = append(t.Previous, t.Attempt)
	if n := len(t.Previous) - keptAttempts; n > 0 {
		t.Previous = append([]workspace.Attempt(nil), t.Previous[n:]...)
	}
}

func end(t *workspace.Task, s workspace.State, f *workspace.Fault, now time.Time) string {
	t.State, t.Fault, t.FinishedAt, t.NotBefore = s, f, &now, nil
	return string(s)
}
