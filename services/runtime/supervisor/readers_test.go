package supervisor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// TestReadersComeBackByName follows one process twice while the node's process goes and comes back: each
// reader goes on where it was, at its own pace.
func TestReadersComeBackByName(t *testing.T) {
	const size = 24_000_000
	b := newBox(t)
	ctx := within(t, 120*time.Second)
	spec := command("/payload", "pattern", fmt.Sprint(size))
	spec.Buffer = 256 << 10
	p, err := b.Start(ctx, spec) // held back until all of them are there
	require.NoError(t, err)
	id := p.ID()
	var mu sync.RWMutex // held for writing while there is no node
	attach := func(name string, at uint64) (*supervisor.Process, error) {
		mu.RLock()
		defer mu.RUnlock()
		return b.AttachAs(ctx, id, supervisor.Offsets{Stdout: at}, supervisor.AttachOptions{Reader: name, Manual: true})
	}
	names := []string{"0000000000000000000a", "0000000000000000000b"}
	var first []*supervisor.Process
	for _, n := range names {
		r, err := attach(n, 0)
		require.NoError(t, err)
		first = append(first, r)
	}
	require.NoError(t, p.Close())
	var readers sync.WaitGroup
	progress := make(chan struct{}, 1024)
	for i, n := range names {
		readers.Go(func() {
			c, r := &checker{t: t}, first[i]
			for {
				ev, err := r.Next(ctx)
				if fault.Is(err, fault.Unavailable) {
					_ = r.Close()
					if r, err = attach(n, c.at); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if ev.Exit != nil {
					require.EqualValues(t, size, c.at)
					_ = r.Close()
					return
				}
				before := c.at
				c.take(ev)
				r.Ack(supervisor.Offsets{Stdout: c.at})
				if n == names[0] && before/(size/4) != c.at/(size/4) {
					progress <- struct{}{}
				}
			}
		})
	}
	for range 3 {
		<-progress
		mu.Lock()
		b.restart()
		mu.Unlock()
	}
	readers.Wait()
}

// TestTheSameReaderTwice: the newer one goes on, the older one is told.
func TestTheSameReaderTwice(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	p, err := b.Start(ctx, shell("echo one; sleep 1000"))
	require.NoError(t, err)
	o := supervisor.AttachOptions{Reader: "0000000000000000000a"}
	older, err := b.AttachAs(ctx, p.ID(), supervisor.Offsets{}, o)
	require.NoError(t, err)
	newer, err := b.AttachAs(ctx, p.ID(), supervisor.Offsets{}, o)
	require.NoError(t, err)
	require.Equal(t, fault.Conflict, fault.CodeOf(drain(ctx, older)))
	ev, err := newer.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "one\n", string(ev.Data))
	require.NoError(t, p.Stop(ctx, 0))
	require.NoError(t, drain(ctx, newer))
	for _, x := range []*supervisor.Process{p, older, newer} {
		require.NoError(t, x.Close())
	}
}

// TestAStalledReaderStallsNobody: it takes nothing and misses something; the other misses nothing.
func TestAStalledReaderStallsNobody(t *testing.T) {
	const size = 16_000_000
	b := newBox(t)
	ctx := within(t, 120*time.Second)
	p, err := b.Start(ctx, command("/payload", "pattern", fmt.Sprint(size)))
	require.NoError(t, err)
	stalled, err := b.AttachAs(ctx, p.ID(), supervisor.Offsets{}, supervisor.AttachOptions{Reader: "0000000000000000000a", Manual: true})
	require.NoError(t, err)
	c := &checker{t: t}
	for {
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		if ev.Exit != nil {
			break
		}
		c.take(ev)
		p.Ack(supervisor.Offsets{Stdout: c.at})
	}
	require.EqualValues(t, size, c.at)
	var dropped, at uint64
	for {
		ev, err := stalled.Next(ctx)
		require.NoError(t, err)
		if ev.Exit != nil {
			break
		}
		dropped += ev.Dropped
		at = ev.Offset + uint64(len(ev.Data))
	}
	require.EqualValues(t, size, at, "it sees the end")
	require.Positive(t, dropped, "and was told what it missed")
	require.NoError(t, stalled.Close())
	require.NoError(t, p.Forget(ctx))
}

// drain reads to the end.
func drain(ctx context.Context, p *supervisor.Process) error {
	for {
		ev, err := p.Next(ctx)
		if err != nil || ev.Exit != nil {
			return err
		}
	}
}
