package demo

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/client"
)

// lookAtLink is how often the connection is looked at.
const lookAtLink = 50 * time.Millisecond

// whileUp calls f again and again until it reports that it is done, or ctx ends. f gets a context that
// ends when the connection breaks, so that what is followed is asked for again as soon as the mesh is
// back, and not only when nothing has come for long.
func whileUp(ctx context.Context, c *client.Client, f func(ctx context.Context) (done bool)) {
	nc := c.Conn().NATS()
	tick := time.NewTicker(lookAtLink)
	defer tick.Stop()
	for ctx.Err() == nil {
		if !nc.IsConnected() {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			continue
		}
		if once(ctx, c, f) {
			return
		}
		select { // the service may need a moment more than the connection
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// once calls f for as long as the present connection lasts.
func once(ctx context.Context, c *client.Client, f func(ctx context.Context) (done bool)) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := c.Conn().NATS().Stats().Reconnects
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(lookAtLink)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if nc := c.Conn().NATS(); !nc.IsConnected() || nc.Stats().Reconnects != before {
				cancel()
				return
			}
		}
	}()
	done := f(ctx)
	cancel()
	<-watched
	return done
}
