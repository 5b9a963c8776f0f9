package supervisor_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// shout answers with the forward's name and everything it got, in upper case.
func shout(_ context.Context, name string, conn net.Conn) {
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err != nil {
		return
	}
	_, _ = conn.Write(append([]byte(name+":"), bytes.ToUpper(got)...))
}

func TestForward(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	dial := func(addr string, in []byte) supervisor.Result {
		res, err := b.Run(ctx, command("/payload", "dial", addr), in, 32<<20)
		require.NoError(t, err)
		return res
	}
	t.Run("nobody serves yet", func(t *testing.T) {
		res := dial("127.0.0.1:4222", []byte("x"))
		require.Empty(t, res.Stdout)
	})
	b.SetForwardHandler(shout)
	t.Run("by name, half closed", func(t *testing.T) {
		require.Equal(t, "nats:HELLO", string(dial("127.0.0.1:4222", []byte("hello")).Stdout))
		require.Equal(t, "vault:", string(dial("127.0.0.1:8200", []byte{}).Stdout))
	})
	t.Run("much data", func(t *testing.T) {
		in := bytes.Repeat([]byte("abcdefgh"), 1<<20)
		out := dial("127.0.0.1:4222", in).Stdout
		require.Equal(t, "nats:"+strings.ToUpper(string(in)), string(out))
	})
	t.Run("many at once", func(t *testing.T) {
		results := make(chan string, 50)
		for range 50 {
			go func() { results <- string(dial("127.0.0.1:4222", []byte("x")).Stdout) }()
		}
		for range 50 {
			require.Equal(t, "nats:X", <-results)
		}
	})
	t.Run("the node comes back", func(t *testing.T) {
		b.restart()
		b.SetForwardHandler(shout)
		require.Equal(t, "nats:AGAIN", string(dial("127.0.0.1:4222", []byte("again")).Stdout))
	})
	t.Run("the handler's end cuts the connection", func(t *testing.T) {
		b.SetForwardHandler(func(_ context.Context, _ string, c net.Conn) { _ = c.Close() })
		spec := command("/payload", "dial", "127.0.0.1:4222")
		spec.Stdin = true
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return p.WriteStdin(ctx, []byte("x")) != nil }, time.Minute, 10*time.Millisecond)
		require.NoError(t, p.Close())
	})
	t.Run("the handler's context ends with the channel", func(t *testing.T) {
		started, ended := make(chan struct{}), make(chan struct{})
		b.SetForwardHandler(func(ctx context.Context, _ string, c net.Conn) {
			close(started)
			<-ctx.Done()
			_, err := c.Read(make([]byte, 1))
			if err != nil {
				close(ended)
			}
			_ = c.Close()
		})
		spec := command("/payload", "dial", "127.0.0.1:4222")
		spec.Stdin = true
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		<-started
		b.Disconnect()
		<-ended
		require.NoError(t, p.Stop(ctx, 0))
		require.NoError(t, p.Close())
	})
}

// TestLoopbackIsBroughtUp joins a network namespace in which nobody has done anything yet.
func TestLoopbackIsBroughtUp(t *testing.T) {
	b := newBox(t, withPinned())
	b.SetForwardHandler(shout)
	res, err := b.Run(within(t, 10*time.Second), command("/payload", "dial", "127.0.0.1:4222"), []byte("up"), 100)
	require.NoError(t, err)
	require.Equal(t, "nats:UP", string(res.Stdout))
	u, err := b.Usage(within(t, 5*time.Second))
	require.NoError(t, err)
	t.Logf("weft-init, hardly used: %d KiB resident", u.InitRSS>>10)
}

func TestDial(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 30*time.Second)
	for _, c := range []struct{ network, addr string }{{"tcp", "127.0.0.1:7777"}, {"unix", "/tmp/echo.sock"}} {
		t.Run(c.network, func(t *testing.T) {
			p, err := b.Start(ctx, command("/payload", "echo", c.network, c.addr))
			require.NoError(t, err)
			b.read(p, "listening")
			dial := func() (net.Conn, error) { return b.Dial(ctx, c.network, c.addr) }
			if c.network == "unix" {
				_, err = b.DialAs(ctx, supervisor.Identity{UID: 0}, c.addr)
				require.Error(t, err, "nobody dials as process 1")
				dial = func() (net.Conn, error) { return b.DialAs(ctx, as, c.addr) }
			}
			conn, err := dial()
			require.NoError(t, err)
			_, err = conn.Write([]byte("hello"))
			require.NoError(t, err)
			require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
			got, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, "HELLO", string(got))
			require.NoError(t, conn.Close())
			require.NoError(t, p.Close())
		})
	}
	_, err := b.Dial(ctx, "tcp", "127.0.0.1:1")
	require.Equal(t, fault.Unavailable, fault.CodeOf(err))
	_, err = b.Dial(ctx, "udp", "127.0.0.1:1")
	require.Equal(t, fault.Invalid, fault.CodeOf(err))
}
