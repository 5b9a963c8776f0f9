package stream_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
)

// BenchmarkDownload moves bytes from a node to a tenant's user over loopback TCP, across accounts.
func BenchmarkDownload(b *testing.B) {
	m := meshtest.Start(b, "acme")
	node := m.Node("node-1")
	served, err := node.ServeSandbox("acme", "demo", sandbox, stream.Op(node, "echo", func(ctx context.Context, by mesh.Caller, req ask, s *stream.Session) (told, error) {
		buf := make([]byte, 256<<10)
		for n := 0; n < req.Bytes; n += len(buf) {
			if _, err := s.Channel("out").Write(buf); err != nil {
				return told{}, err
			}
		}
		return told{}, nil
	}))
	require.NoError(b, err)
	b.Cleanup(served.Stop)
	alice := m.User("acme", "alice")
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		s, err := stream.Open(context.Background(), alice, subject(b, "alice"), ask{Bytes: size})
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, s.Channel("out"))
		require.NoError(b, err)
		require.Equal(b, int64(size), n)
		require.NoError(b, s.Result(context.Background(), nil))
		require.NoError(b, s.Close())
	}
}

// BenchmarkOpen opens a stream, sends and receives a few bytes, and takes the result.
func BenchmarkOpen(b *testing.B) {
	m := meshtest.Start(b, "acme")
	serveNode(b, m)
	alice := m.User("acme", "alice")
	for b.Loop() {
		_, err := exchange(context.Background(), alice, subject(b, "alice"), 10, 10)
		require.NoError(b, err)
	}
}
