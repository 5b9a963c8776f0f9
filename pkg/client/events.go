package client

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// quiet is how long a many-reply operation may say nothing; its keepalives come every 8 s.
const quiet = 30 * time.Second

// again is the pause before a broken many-reply operation is asked again.
const again = 200 * time.Millisecond

// Event is one change in the log with the record as JSON.
type Event = workspace.Change[json.RawMessage]

// Events gives the changes of records that r picks, in the log's order, each once. With Follow it goes
// on until ctx ends, across disconnects; else it returns when there are no more. The client's workspace
// is that of the records, "-" for all of the tenant's.
func (c *Client) Events(ctx context.Context, r workspace.EventsRequest, each func(Event) error) error {
	return repeat(ctx, r.Follow, func() (some, ended bool, err error) {
		err = many(ctx, c, workspace.OpEvents, r, func(e Event) error {
			some = true
			if err := each(e); err != nil {
				return stop{err}
			}
			r.FromSequence, r.FromTime = e.Sequence+1, nil
			return nil
		})
		return some, false, err // the service ends a long follow, to be asked again
	})
}

// Output gives the output of a task's attempt from the offsets of r, in order, and each byte once. With
// Follow it goes on until the attempt has ended, across disconnects.
func (c *Client) Output(ctx context.Context, r workspace.OutputRequest, each func(workspace.OutputChunk) error) error {
	offsets := map[string]int64{}
	for k, v := range r.Offsets {
		offsets[k] = v
	}
	r.Offsets = offsets
	return repeat(ctx, r.Follow, func() (some, ended bool, err error) {
		err = many(ctx, c, workspace.OpTaskOutput, r, func(ch workspace.OutputChunk) error {
			some = true
			if r.Attempt == 0 {
				r.Attempt = ch.Attempt
			}
			if ch.End {
				return nil
			}
			if err := each(ch); err != nil {
				return stop{err}
			}
			offsets[ch.Stream] = ch.Offset + int64(len(ch.Data))
			return nil
		})
		if err != nil || !r.Follow {
			return some, true, err
		}
		ended, err = c.attemptEnded(ctx, r.Task, r.Attempt)
		return some, ended, err
	})
}

// attemptEnded reports whether nothing more can come of an attempt: 0 is the first one.
func (c *Client) attemptEnded(ctx context.Context, task string, attempt int) (bool, error) {
	t, err := c.Task(ctx, task)
	if err != nil {
		return false, err
	}
	return t.State.Final() || attempt > 0 && (t.Attempt.Number > attempt || t.Attempt.EndedAt != nil || t.State == workspace.Pending), nil
}

// many asks a many-reply operation. When the connection is lost the rest of its answers is, too, so it
// ends then, to be asked again.
func many[Rep any](ctx context.Context, c *Client, op string, req any, each func(Rep) error) error {
	subject, err := c.req(schemas.WorkspaceManager, op)
	if err != nil {
		return err
	}
	nc := c.conn.NATS()
	ask, cancel := context.WithCancelCause(ctx)
	lost := nc.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-lost:
			cancel(errAway)
		case <-ask.Done():
		}
	})
	defer watch.Wait()
	defer cancel(nil)
	defer nc.RemoveStatusListener(lost)
	if !nc.IsConnected() {
		return errAway
	}
	err = mesh.RequestMany(ask, c.conn, subject, req, quiet, each)
	if err != nil && ctx.Err() == nil && context.Cause(ask) == errAway {
		return errAway
	}
	return err
}

var errAway = fault.New(fault.Unavailable, "the connection to the mesh is lost")

// stop is an error of the caller's own function: it ends everything.
type stop struct{ error }

func (s stop) Unwrap() error { return s.error }

// For how long a service may be away while somebody follows: at first, and once it had answered.
const (
	firstAway = 10 * time.Second
	maxAway   = 2 * time.Minute
)

// absence measures for how long a service has not answered.
type absence struct {
	since    time.Time
	answered bool
}

func (a *absence) end() { a.since, a.answered = time.Time{}, true }

// over reports whether err says more than that the service is away, or says so for too long.
func (a *absence) over(err error) bool {
	if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Deadline) {
		return true
	}
	limit := firstAway
	if a.answered {
		limit = maxAway
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return time.Since(a.since) > limit
}

// repeat asks until it ended, if follow is set, also while the service is away. ask reports whether
// anything came, and whether that was all.
func repeat(ctx context.Context, follow bool, ask func() (some, ended bool, err error)) error {
	var away absence
	for {
		some, ended, err := ask()
		if s, ok := err.(stop); ok {
			return s.error
		}
		if err == nil && (ended || !follow) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if some || err == nil {
			away.end()
		}
		if err != nil && (!follow || away.over(err)) {
			return err
		}
		t := time.NewTimer(again)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}
