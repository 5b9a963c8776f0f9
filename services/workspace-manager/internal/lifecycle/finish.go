package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Attempts where neither the submission nor the agent gives a number: a command that fails is not
// tried again, a fault of the mesh is, up to lossAttempts in all. A number that is given bounds both.
const lossAttempts = 5

// Backoff before another try.
const (
	DefaultBackoff = time.Second
	MaxBackoff     = 5 * time.Minute
)

// Backoff is how long to wait after attempt number (from 1) has failed: base, doubled with each
// further one, at most MaxBackoff.
func Backoff(base time.Duration, number int) time.Duration {
	if base <= 0 {
		base = DefaultBackoff
	}
	for i := 1; i < number && base < MaxBackoff; i++ {
		base *= 2
	}
	return min(base, MaxBackoff)
}

// Finish ends the running attempt as its node reports it. A repeat of the same report changes nothing;
// a report of an attempt that is no longer the node's is a conflict.
func Finish(t *workspace.Task, h Holder, f workspace.Finish, now time.Time) (string, error) {
	if reported(t, h, f) {
		return "", nil
	}
	if t.State != workspace.Running || !holds(t, h) {
		return "", notHeld(t, h)
	}
	if f.Fault == nil && f.Outcome.Exit == nil {
		f.Fault = &workspace.Fault{Code: string(schemas.Internal), Message: "the node gave neither an exit nor a fault"}
	}
	note(&t.Attempt, f.CommandAt, f.FirstOutputAt)
	t.Attempt.EndedAt, t.Attempt.Outcome, t.Attempt.Fault = &now, &f.Outcome, f.Fault
	exit := f.Outcome.Exit
	switch {
	case f.Fault == nil && exit.Code == 0 && exit.Reason == ReasonExited:
		return end(t, workspace.Complete, nil, now), nil
	case t.Cancel != "":
		return end(t, workspace.Cancelled, nil, now), nil
	case f.Fault != nil && !f.Retry:
		return end(t, workspace.Error, f.Fault, now), nil
	case mayRetry(t, f.Fault != nil || f.Retry):
		return retry(t, Backoff(time.Duration(t.BackoffMS)*time.Millisecond, t.Attempt.Number), now), nil
	}
	return end(t, workspace.Error, f.Fault, now), nil
}

// Lost ends attempt number without its node: reason is node-lost or timeout. It is tried again at
// once where that is allowed.
func Lost(t *workspace.Task, number int, reason string, now time.Time) (string, error) {
	if t.State != workspace.Running || t.Attempt.Number != number {
		return "", nil
	}
	f := &workspace.Fault{Code: string(schemas.Unavailable), Message: fmt.Sprintf("%s: node %s no longer answers for attempt %d", reason, t.Attempt.Node, number)}
	if reason == ReasonTimeout {
		f = &workspace.Fault{Code: string(schemas.Deadline), Message: fmt.Sprintf("timeout: node %s did not end attempt %d in time", t.Attempt.Node, number)}
	}
	t.Attempt.EndedAt, t.Attempt.Fault = &now, f
	t.Attempt.Outcome = &workspace.Outcome{Exit: &workspace.Exit{Code: -1, Reason: reason}}
	switch {
	case t.Cancel != "":
		return end(t, workspace.Cancelled, nil, now), nil
	case mayRetry(t, reason == ReasonNodeLost):
		return retry(t, 0, now), nil
	}
	return end(t, workspace.Error, f, now), nil
}

func retry(t *workspace.Task, wait time.Duration, now time.Time) string {
	t.State = workspace.Pending
	at := now.Add(wait)
	t.NotBefore = &at
	return Retrying
}

// mayRetry reports whether another try is allowed after the current one; loss says that the mesh was
// at fault and not the command.
func mayRetry(t *workspace.Task, loss bool) bool {
	limit := t.MaxAttempts
	if limit == 0 {
		if !loss {
			return false
		}
		limit = lossAttempts
	}
	return t.Attempt.Number < limit
}

// reported tells whether exactly this report was taken before, by the attempt's outcome and node.
func reported(t *workspace.Task, h Holder, f workspace.Finish) bool {
	a := t.Attempt
	if a.Number != h.Attempt {
		for _, p := range t.Previous {
			if p.Number == h.Attempt {
				a = p
			}
		}
	}
	if a.Number != h.Attempt || a.Node != h.Node || a.EndedAt == nil || a.Outcome == nil {
		return false
	}
	return same(a.Outcome, &f.Outcome) && same(a.Fault, f.Fault)
}

// same compares by the wire form, in which a record was read back.
func same(a, b any) bool {
	x, errx := json.Marshal(a)
	y, erry := json.Marshal(b)
	return errx == nil && erry == nil && bytes.Equal(x, y)
}
