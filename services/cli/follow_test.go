package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestFollowAcrossDisconnects: whoever follows a task or the log sees each byte and each event once,
// though the connection breaks again and again.
func TestFollowAcrossDisconnects(t *testing.T) {
	f := startFake(t)
	f.addWorkspace("lossy")
	front := newBreaker(t, strings.TrimPrefix(f.m.Bus.URL(), "nats://"))
	ctx := meshtest.Context(t)
	c, err := client.Dial(ctx, client.Context{URL: "nats://" + front.addr, DataDir: f.m.Dir, Tenant: "acme", Workspace: "lossy", Principal: "alice"})
	require.NoError(t, err)
	t.Cleanup(c.Close)

	events := make(chan string, 1000)
	since := time.Now().Add(-time.Minute)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	wg.Go(func() {
		_ = c.Events(ctx, workspace.EventsRequest{FromTime: &since, Follow: true}, func(e client.Event) error {
			var task workspace.Task
			if err := json.Unmarshal(e.Value, &task); err != nil {
				return err
			}
			events <- e.Event
			if task.State.Final() {
				return io.EOF
			}
			return nil
		})
		close(events)
	})
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(700 * time.Millisecond):
				front.cut()
			}
		}
	})
	var out strings.Builder
	task, err := c.Run(ctx, workspace.Submission{Template: "base", Command: []string{"sh", "-c", "for i in $(seq 200); do echo line $i; sleep 0.02; done"}}, "",
		client.Following{Output: func(ch workspace.OutputChunk) error { out.Write(ch.Data); return nil }})
	close(stop)
	require.NoError(t, err)
	require.Equal(t, workspace.Complete, task.State)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	require.Equal(t, want.String(), out.String())
	var got []string
	for e := range events {
		got = append(got, e)
	}
	require.Equal(t, []string{"submitted", "running", "complete"}, got)
	front.mu.Lock()
	defer front.mu.Unlock()
	require.Positive(t, front.cuts)
}

// breaker is a TCP proxy whose connections can be cut.
type breaker struct {
	addr string
	mu   sync.Mutex
	open []net.Conn
	cuts int
}

func newBreaker(t *testing.T, to string) *breaker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &breaker{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			b.mu.Lock()
			b.open = append(b.open, in, out)
			b.mu.Unlock()
			for _, w := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(w[1], w[0])
					_, _ = in.Close(), out.Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); b.cut(); wg.Wait() })
	return b
}

func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.open {
		_ = c.Close()
		b.cuts++
	}
	b.open = nil
}
