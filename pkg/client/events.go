package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// quiet is how long a many-reply operation may say nothing; its keepalives come every 8 s.
const quiet = 30 * time.Second

// again is the pause before a broken many-reply operation is asked again.
const again = 500 * time.Millisecond

// Event is one change in the log with the record as JSON.
type Event = workspace.Change[json.RawMessage]

// Events gives the changes of records that r picks, in the log's order, each once. With Follow it goes
// on until ctx ends, across disconnects; else it returns when there are no more. The client's workspace
// is that of the records, "-" for all of the tenant's.
func (c *Client) Events(ctx context.Context, r workspace.EventsRequest, each func(Event) error) error {
	return resume(ctx, r.Follow, func() (bool, error) {
		some := false
		err := many(ctx, c, workspace.OpEvents, r, func(e Event) error {
			some = true
			if err := each(e); err != nil {
				return stop{err}
			}
			r.FromSequence, r.FromTime = e.Sequence+1, nil
			return nil
		})
		return some, err
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
	return resume(ctx, r.Follow, func() (bool, error) {
		some := false
		err := many(ctx, c, workspace.OpTaskOutput, r, func(ch workspace.OutputChunk) error {
			some = true
			if ch.End {
				return nil
			}
			if r.Attempt == 0 {
				r.Attempt = ch.Attempt
			}
			if err := each(ch); err != nil {
				return stop{err}
			}
			offsets[ch.Stream] = ch.Offset + int64(len(ch.Data))
			return nil
		})
		return some, err
	})
}

func many[Rep any](ctx context.Context, c *Client, op string, req any, each func(Rep) error) error {
	subject, err := c.req(schemas.WorkspaceManager, op)
	if err != nil {
		return err
	}
	return mesh.RequestMany(ctx, c.conn, subject, req, quiet, each)
}

// stop is an error of the caller's own function: it ends everything.
type stop struct{ error }

func (s stop) Unwrap() error { return s.error }

// maxAway is for how long a service may be away while somebody follows.
const maxAway = 2 * time.Minute

// resume asks again while the service is away, if follow is set and it once answered. ask reports
// whether anything came.
func resume(ctx context.Context, follow bool, ask func() (bool, error)) error {
	var away time.Time
	answered := false
	for {
		some, err := ask()
		answered = answered || some
		if s, ok := err.(stop); ok {
			return s.error
		}
		if err == nil || !follow || ctx.Err() != nil || !fault.Is(err, fault.Unavailable) {
			return err
		}
		now := time.Now()
		if some || away.IsZero() {
			away = now
		}
		if !answered && now.Sub(away) > maxAway/12 || now.Sub(away) > maxAway {
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
