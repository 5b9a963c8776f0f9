package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// An acknowledgement takes some milliseconds. A server whose disk is full gives none, and no refusal either.
const (
	ackPatience = 2 * time.Second // after which the mesh is asked why
	whyTimeout  = 2 * time.Second
)

// publish stores a message, or says why it is not stored rather than let the caller wait for ever.
func (c *Client) publish(ctx context.Context, m *nats.Msg) (mesh.Ack, error) {
	type result struct {
		ack mesh.Ack
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		ack, err := c.conn.PublishMsg(ctx, m)
		done <- result{ack, err}
	}()
	patience := time.NewTimer(ackPatience)
	defer patience.Stop()
	var r result
	select {
	case r = <-done:
	case <-patience.C:
		if why := c.whyNotStored(ctx); why != nil {
			cancel()
			if r = <-done; r.err != nil {
				r.err = why
			}
			return r.ack, r.err
		}
		r = <-done
	}
	if fault.Is(r.err, fault.Deadline) {
		if why := c.whyNotStored(context.WithoutCancel(ctx)); why != nil {
			r.err = why
		}
	}
	return r.ack, r.err
}

// whyNotStored asks whether the mesh stores anything; nil means that it does, or that nobody knows.
func (c *Client) whyNotStored(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	st, err := ask[workspace.MeshState](ctx, c, schemas.WorkspaceManager, workspace.OpMeshState, workspace.Empty{})
	if err != nil || st.Storing {
		return nil
	}
	return fault.New(fault.Exhausted, "no acknowledgement came: %s", st.Reason)
}
