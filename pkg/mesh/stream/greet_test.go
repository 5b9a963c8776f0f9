package stream_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
)

// frames opens a stream by hand and gives the kinds and channels of what the server sends, until it is over or n came.
func frames(t *testing.T, c *mesh.Conn, to string, header nats.Header, n int) (kinds []string) {
	t.Helper()
	nc := c.NATS()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	h := nats.Header{stream.HeaderFrame: {"open"}, stream.HeaderID: {schemas.NewID()}}
	for k, v := range header {
		h[k] = v
	}
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: to, Reply: sub.Subject, Header: h, Data: []byte("{}")}))
	for len(kinds) < n {
		m, err := sub.NextMsg(30 * time.Second)
		require.NoError(t, err)
		kind := m.Header.Get(stream.HeaderFrame)
		if kind == "" {
			return kinds
		}
		if ch := m.Header.Get(schemas.HeaderStream); ch != "" {
			kind += " " + ch
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// serveGreeting serves a handler that greets and ends when over is closed; one that says nothing is beside it.
func serveGreeting(t *testing.T, m *meshtest.Mesh, over <-chan struct{}) {
	t.Helper()
	node := m.Node("node-1")
	wait := func(ctx context.Context) {
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	served, err := node.ServeSandbox("acme", "demo", sandbox,
		stream.Op(node, "echo", func(ctx context.Context, _ mesh.Caller, _ ask, s *stream.Session) (told, error) {
			err := s.Greet("hello", 1)
			wait(ctx)
			return told{}, err
		}, stream.SpeaksFirst()),
		stream.Op(node, "silent", func(ctx context.Context, _ mesh.Caller, _ ask, _ *stream.Session) (told, error) {
			wait(ctx)
			return told{}, nil
		}, stream.SpeaksFirst()),
		stream.Op(node, "reads", func(_ context.Context, _ mesh.Caller, _ ask, s *stream.Session) (told, error) {
			_, err := io.ReadAll(s.Channel("in"))
			return told{}, err
		}))
	require.NoError(t, err)
	t.Cleanup(served.Stop)
}

func operation(t *testing.T, op string) string {
	t.Helper()
	to, err := schemas.Sbx("acme", "demo", sandbox, "alice", op)
	require.NoError(t, err)
	return to
}

// What a handler says first tells that the stream is open, and goes out with what follows soon.
func TestHandlerThatSpeaksFirst(t *testing.T) {
	m, over := meshtest.Start(t, "acme"), make(chan struct{})
	serveGreeting(t, m, over)
	alice := m.User("acme", "alice")
	// Nothing follows: the message goes out all the same, and what has nothing to say is said to be open.
	require.Equal(t, []string{"data control"}, frames(t, alice, operation(t, "echo"), nil, 1))
	require.Equal(t, []string{"opened"}, frames(t, alice, operation(t, "silent"), nil, 1))
	close(over)
	require.Equal(t, []string{"data control", "data result"}, frames(t, alice, operation(t, "echo"), nil, 2))
	require.Equal(t, []string{"data result"}, frames(t, alice, operation(t, "silent"), nil, 1))
	// The client's side of it.
	s, err := stream.Open(meshtest.Context(t), alice, operation(t, "echo"), ask{})
	require.NoError(t, err)
	got, err := s.Receive(meshtest.Context(t))
	require.NoError(t, err)
	require.Equal(t, "hello", got.Type)
	require.NoError(t, s.Result(meshtest.Context(t), nil))
	require.NoError(t, s.Close())
}

// A client that sends nothing on a channel says so when it opens the stream, and with no frame more.
func TestSilentChannel(t *testing.T) {
	m := meshtest.Start(t, "acme")
	serveGreeting(t, m, nil)
	alice := m.User("acme", "alice")
	silent := nats.Header{stream.HeaderEnded: {"in"}}
	require.Equal(t, []string{"opened", "data result"}, frames(t, alice, operation(t, "reads"), silent, 2))
	s, err := stream.Open(meshtest.Context(t), alice, operation(t, "reads"), ask{}, stream.Silent("in"))
	require.NoError(t, err)
	_, err = s.Channel("in").Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, s.Channel("in").CloseWrite())
	require.NoError(t, s.Result(meshtest.Context(t), nil))
	require.NoError(t, s.Close())
	// Names are checked like all that comes from outside.
	for _, names := range []string{"In", "a,,b", "a,b,c,d,e,f,g,h,i,j,k,l"} {
		require.Empty(t, frames(t, alice, operation(t, "reads"), nats.Header{stream.HeaderEnded: {names}}, 1), names)
	}
}
