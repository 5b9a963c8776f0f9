package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
)

// quick finds losses within milliseconds.
var quick = stream.WithTiming(stream.Timing{
	Keepalive: 50 * time.Millisecond, Silence: 200 * time.Millisecond, Idle: 10 * time.Second,
	Probe: 50 * time.Millisecond, Delay: 5 * time.Millisecond, Gone: 8 * time.Second,
})

type ask struct {
	Bytes int    `json:"bytes"` // to send on "out"
	Fail  string `json:"fail"`
	Wait  bool   `json:"wait"` // until the stream is over
}

type told struct {
	By  mesh.Caller
	Sum []byte // of what came on "in"
}

// echo sends Bytes on "out", then reads "in" to its end.
func echo(ctx context.Context, by mesh.Caller, req ask, s *stream.Session) (told, error) {
	if req.Fail != "" {
		return told{}, fault.New(fault.Conflict, "%s", req.Fail)
	}
	if req.Wait {
		<-ctx.Done()
		return told{}, ctx.Err()
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = s.Channel("out").Write(pattern(req.Bytes))
		_ = s.Channel("out").CloseWrite()
	})
	h := sha256.New()
	_, err := io.Copy(h, s.Channel("in"))
	wg.Wait()
	return told{By: by, Sum: h.Sum(nil)}, err
}

func pattern(n int) []byte {
	b := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(b)
	return b
}

const sandbox = "0123456789abcdefghij"

func subject(t testing.TB, principal string) string {
	s, err := schemas.Sbx("acme", "demo", sandbox, principal, "echo")
	require.NoError(t, err)
	return s
}

func serveNode(t testing.TB, m *meshtest.Mesh, opts ...stream.Option) *mesh.Conn {
	node := m.Node("node-1")
	served, err := node.ServeSandbox("acme", "demo", sandbox, stream.Op(node, "echo", echo, opts...))
	require.NoError(t, err)
	t.Cleanup(served.Stop)
	return node
}

func exchange(ctx context.Context, c *mesh.Conn, subject string, up, down int, opts ...stream.Option) (told, error) {
	s, err := stream.Open(ctx, c, subject, ask{Bytes: down}, opts...)
	if err != nil {
		return told{}, err
	}
	defer func() { _ = s.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = s.Channel("in").Write(pattern(up))
		_ = s.Channel("in").CloseWrite()
	})
	h := sha256.New()
	if _, err := io.Copy(h, s.Channel("out")); err != nil {
		return told{}, err
	}
	var r told
	if err := s.Result(ctx, &r); err != nil {
		return told{}, err
	}
	upSum, downSum := sha256.Sum256(pattern(up)), sha256.Sum256(pattern(down))
	if !bytes.Equal(r.Sum, upSum[:]) || !bytes.Equal(h.Sum(nil), downSum[:]) {
		return r, fault.New(fault.Internal, "bytes differ")
	}
	return r, nil
}

// TestAcrossAccounts opens streams from a tenant's account to a node in NODES and to a service in WEFT.
func TestAcrossAccounts(t *testing.T) {
	m := meshtest.Start(t, "acme")
	serveNode(t, m)
	fs := m.Service(schemas.Filesystem)
	served, err := fs.ServeReq(schemas.Filesystem, stream.Op(fs, "get", echo))
	require.NoError(t, err)
	t.Cleanup(served.Stop)
	ctx := meshtest.Context(t)

	r, err := exchange(ctx, m.User("acme", "alice"), subject(t, "alice"), 5<<20, 7<<20)
	require.NoError(t, err)
	require.Equal(t, mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "alice"}, r.By)

	get, err := schemas.Req("acme", "demo", "planner", schemas.Filesystem, "get")
	require.NoError(t, err)
	r, err = exchange(ctx, m.Agent("acme", "demo", "planner", sandbox), get, 300_000, 2<<20)
	require.NoError(t, err)
	require.Equal(t, "planner", r.By.Principal)
}

func TestRefusals(t *testing.T) {
	m := meshtest.Start(t, "acme", "other")
	serveNode(t, m)
	ctx := meshtest.Context(t)
	alice, mallory, stranger := m.User("acme", "alice"), m.User("acme", "mallory"), m.User("other", "alice")

	s, err := stream.Open(ctx, alice, subject(t, "alice"), ask{Fail: "not now"})
	require.NoError(t, err)
	err = s.Result(ctx, nil)
	require.True(t, fault.Is(err, fault.Conflict))
	require.EqualError(t, err, "not now")
	require.NoError(t, s.Close())

	_, err = stream.Open(ctx, mallory, subject(t, "alice"), ask{})
	require.True(t, fault.Is(err, fault.Denied), "another principal: %v", err)
	_, err = stream.Open(ctx, stranger, subject(t, "alice"), ask{})
	require.True(t, fault.Is(err, fault.Denied), "another tenant: %v", err)
	gone, err := schemas.Sbx("acme", "demo", schemas.NewID(), "alice", "echo")
	require.NoError(t, err)
	_, err = stream.Open(ctx, alice, gone, ask{})
	require.True(t, fault.Is(err, fault.Unavailable), "no such sandbox: %v", err)
	_, err = mesh.Request[struct{}](ctx, alice, subject(t, "alice"), ask{})
	require.True(t, fault.Is(err, fault.Invalid), "a plain request: %v", err)
	_, err = stream.Open(ctx, alice, subject(t, "alice"), "no object")
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
}

// TestNobodyElseInjects: the frames of a stream come from its opener only, though its id be known.
func TestNobodyElseInjects(t *testing.T) {
	m := meshtest.Start(t, "acme")
	serveNode(t, m, quick)
	ctx := meshtest.Context(t)
	s, err := stream.Open(ctx, m.User("acme", "alice"), subject(t, "alice"), ask{Bytes: 10}, quick)
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	mallory := m.User("acme", "mallory")
	own := subject(t, "mallory")
	for _, to := range []string{mustSubject(t, subject(t, "alice"), s.ID), mustSubject(t, own, s.ID)} {
		for _, kind := range []string{"data", "reset", "status"} {
			msg := &nats.Msg{Subject: to, Reply: mallory.NATS().NewInbox(), Data: []byte(`{"code":"denied","message":"gotcha"}`),
				Header: nats.Header{stream.HeaderFrame: {kind}, schemas.HeaderStream: {"in"}, schemas.HeaderOffset: {"0"}}}
			require.NoError(t, mallory.NATS().PublishMsg(msg))
		}
	}
	require.NoError(t, mallory.NATS().FlushWithContext(ctx))
	_, err = s.Channel("in").Write([]byte("mine"))
	require.NoError(t, err)
	require.NoError(t, s.Channel("in").CloseWrite())
	var r told
	require.NoError(t, s.Result(ctx, &r))
	want := sha256.Sum256([]byte("mine"))
	require.Equal(t, want[:], r.Sum)
}

func mustSubject(t testing.TB, s, id string) string {
	got, err := stream.Subject(s, id)
	require.NoError(t, err)
	return got
}

func TestCallerAndServiceGoingAway(t *testing.T) {
	m := meshtest.Start(t, "acme")
	node := m.Node("node-1")
	left := make(chan error, 1)
	served, err := node.ServeSandbox("acme", "demo", sandbox, stream.Op(node, "echo", func(ctx context.Context, by mesh.Caller, req ask, s *stream.Session) (told, error) {
		<-ctx.Done()
		left <- s.Err()
		return told{}, ctx.Err()
	}, quick))
	require.NoError(t, err)
	alice := m.User("acme", "alice")

	ctx, cancel := context.WithCancel(meshtest.Context(t))
	s, err := stream.Open(ctx, alice, subject(t, "alice"), ask{}, quick)
	require.NoError(t, err)
	cancel()
	require.Error(t, <-left)
	require.NoError(t, s.Close())

	s, err = stream.Open(meshtest.Context(t), alice, subject(t, "alice"), ask{}, quick)
	require.NoError(t, err)
	served.Stop()
	<-left
	err = s.Result(meshtest.Context(t), nil) // by a reset, or as the handler's last word: whichever came first
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.NoError(t, s.Close())
}

func TestOneCallerCannotTakeAllStreams(t *testing.T) {
	m := meshtest.Start(t, "acme")
	serveNode(t, m, quick)
	ctx := meshtest.Context(t)
	alice, bob := m.User("acme", "alice"), m.User("acme", "bob")
	var open []*stream.Session
	defer func() {
		for _, s := range open {
			_ = s.Close()
		}
	}()
	for {
		s, err := stream.Open(ctx, alice, subject(t, "alice"), ask{Wait: true}, quick)
		if err != nil {
			require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
			break
		}
		open = append(open, s)
		require.Less(t, len(open), 500)
	}
	_, err := exchange(ctx, bob, subject(t, "bob"), 1000, 1000, quick)
	require.NoError(t, err)
}

// TestAStalledClientStallsNobody: one that stops reading holds its own windows, and others go on.
func TestAStalledClientStallsNobody(t *testing.T) {
	m := meshtest.Start(t, "acme")
	serveNode(t, m)
	ctx := meshtest.Context(t)
	alice := m.User("acme", "alice")
	for range 8 {
		s, err := stream.Open(ctx, alice, subject(t, "alice"), ask{Bytes: 64 << 20})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
	}
	start := time.Now()
	_, err := exchange(ctx, m.User("acme", "bob"), subject(t, "bob"), 1<<20, 16<<20)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 10*time.Second)
}

// TestDisconnects cuts the client's and the node's connections over and over during a transfer.
func TestDisconnects(t *testing.T) {
	m := meshtest.Start(t, "acme")
	var cuts atomic.Int64
	front := newCutter(t, strings.TrimPrefix(m.Bus.URL(), "nats://"), &cuts)
	through := func(name string, creds func() (accounts.Credentials, error)) *mesh.Conn {
		c, err := mesh.Connect(meshtest.Context(t), mesh.Options{URL: "nats://" + front.addr, Name: name, Credentials: creds})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	node := through("node-1", func() (accounts.Credentials, error) { return m.Keys.Node("node-1", "default") })
	served, err := node.ServeSandbox("acme", "demo", sandbox, stream.Op(node, "echo", echo, quick))
	require.NoError(t, err)
	t.Cleanup(served.Stop)
	alice := through("alice", func() (accounts.Credentials, error) { return m.Keys.User("acme", "alice", time.Hour) })
	s := subject(t, "alice")
	_, err = exchange(meshtest.Context(t), alice, s, 1000, 1000, quick)
	require.NoError(t, err)

	front.after.Store(4 << 20) // every connection is cut after so many bytes
	_, err = exchange(meshtest.Context(t), alice, s, 12<<20, 16<<20, quick)
	require.NoError(t, err)
	require.GreaterOrEqual(t, cuts.Load(), int64(3))
	front.after.Store(0)
}

// cutter is a TCP proxy that breaks connections.
type cutter struct {
	addr  string
	after atomic.Int64 // bytes to let through of a connection, 0 for all
}

func newCutter(t testing.TB, to string, cuts *atomic.Int64) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{addr: l.Addr().String()}
	var wg sync.WaitGroup
	open := map[net.Conn]bool{}
	var mu sync.Mutex
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
			mu.Lock()
			open[in], open[out] = true, true
			mu.Unlock()
			var n atomic.Int64
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					b := make([]byte, 32<<10)
					for {
						k, err := way[0].Read(b)
						if limit := c.after.Load(); limit > 0 && n.Add(int64(k)) > limit {
							cuts.Add(1)
							err = io.EOF
						}
						if err == nil {
							_, err = way[1].Write(b[:k])
						}
						if err != nil {
							_, _ = in.Close(), out.Close()
							return
						}
					}
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return c
}
