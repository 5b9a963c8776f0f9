package supervisor_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const fakeID = "0123456789abcdefghij"

// fake is a weft-init that holds the key and answers what a test wants: the node must stand even that.
type fake struct {
	t       *testing.T
	server  *supervisor.Server
	box     *supervisor.Sandbox
	session *yamux.Session
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t}
	dir := t.TempDir()
	var err error
	f.server, err = supervisor.NewServer(dir, supervisor.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.server.Close()) })
	f.box, err = f.server.Add(fakeID, supervisor.Owner{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())})
	require.NoError(t, err)
	run := filepath.Join(dir, fakeID, "run")
	raw, err := os.ReadFile(filepath.Join(run, "key"))
	require.NoError(t, err)
	c, err := net.Dial("unix", filepath.Join(run, "sock"))
	require.NoError(t, err)
	require.NoError(t, wire.HandshakeInit(c, fakeID, wire.Key(raw), 5*time.Second))
	f.session, err = wire.Mux(c, true, io.Discard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.session.Close() })
	require.NoError(t, f.box.WaitConnected(within(t, 5*time.Second)))
	return f
}

// answer gives every request the same bytes, and ends the stream if last.
func (f *fake) answer(say []byte, last bool) {
	go func() {
		for {
			st, err := f.session.AcceptStream()
			if err != nil {
				return
			}
			go func() {
				_, _ = wire.NewReader(st).Message()
				_, _ = st.Write(say)
				if last {
					_ = st.Close()
				}
			}()
		}
	}()
}

func frame(t wire.Type, body string) []byte {
	var b bytes.Buffer
	_ = wire.WriteFrame(&b, t, []byte(body))
	return b.Bytes()
}

func TestGarbageFromTheSandbox(t *testing.T) {
	started := frame(wire.TypeReply, `{"process":{"id":"0123456789abcdefghij","output":"attached"}}`)
	for name, say := range map[string][]byte{
		"not JSON":            frame(wire.TypeReply, "}"),
		"another type":        frame(wire.TypeStdout, "12345678x"),
		"empty reply":         frame(wire.TypeReply, "{}"),
		"error without code":  frame(wire.TypeError, `{"message":"x"}`),
		"unknown frame":       {99, 0, 0, 0},
		"long frame":          {2, 0xff, 0xff, 0xff},
		"output goes back":    append(append(bytes.Clone(started), frame(wire.TypeStdout, "\x00\x00\x00\x00\x00\x00\x00\x09x")...), frame(wire.TypeStdout, "\x00\x00\x00\x00\x00\x00\x00\x00x")...),
		"output without data": append(bytes.Clone(started), frame(wire.TypeStdout, "\x00\x00\x00\x00\x00\x00\x00\x00")...),
		"short offset":        append(bytes.Clone(started), frame(wire.TypeStdout, "\x00")...),
		"offset overflows":    append(bytes.Clone(started), frame(wire.TypeStdout, "\xff\xff\xff\xff\xff\xff\xff\xffxx")...),
		"exit is no exit":     append(bytes.Clone(started), frame(wire.TypeExit, "[]")...),
		"a request":           append(bytes.Clone(started), frame(wire.TypeRequest, "{}")...),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.answer(say, false)
			ctx := within(t, 20*time.Second)
			// Whatever comes, every call ends, with an error or with what was made up.
			if p, err := f.box.Start(ctx, command("true")); err == nil {
				for err == nil {
					_, err = p.Next(ctx)
				}
				require.NotEqual(t, fault.Deadline, fault.CodeOf(err), "%v", err)
				require.NoError(t, p.Close())
			}
			_, _ = f.box.List(ctx)
			_, _ = f.box.Usage(ctx)
			_, _ = f.box.Files(as).Stat(ctx, "/")
			_, _, _ = f.box.Files(as).Entries(ctx, "/", supervisor.FileQuery{})
			_, _ = f.box.Files(as).Glob(ctx, "/", supervisor.FileQuery{Glob: "**"}, func([]supervisor.FileInfo) error { return nil })
			if r, _, err := f.box.Files(as).Read(ctx, "/", 0, -1); err == nil {
				_ = r.Close()
			}
			require.NoError(t, ctx.Err())
		})
	}
}

func TestSilenceFromTheSandbox(t *testing.T) {
	f := newFake(t)
	f.answer(nil, false)
	short := func() context.Context { return within(t, 50*time.Millisecond) }
	_, err := f.box.Start(short(), command("true"))
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
	_, err = f.box.List(short())
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
	_, err = f.box.Dial(short(), "tcp", "127.0.0.1:1")
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
	_, err = f.box.Files(as).Write(short(), "/x", 0o644, strings.NewReader("x"))
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
	_, _, err = f.box.Files(as).Entries(short(), "/x", supervisor.FileQuery{})
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
	_, err = f.box.Files(as).Glob(short(), "/x", supervisor.FileQuery{Glob: "**"}, func([]supervisor.FileInfo) error { return nil })
	require.Equal(t, fault.Deadline, fault.CodeOf(err))
}

// TestLostAnswer breaks the connection between a start and its answer: it is asked again, and says so.
func TestLostAnswer(t *testing.T) {
	f := newFake(t)
	again := make(chan bool, 2)
	go func() {
		for range 2 {
			st, err := f.session.AcceptStream()
			if err != nil {
				return
			}
			var req wire.Request
			m, err := wire.NewReader(st).Message()
			if err == nil {
				_ = m.Decode(&req)
			}
			again <- req.Again
			if !req.Again {
				_ = st.Close() // as a connection's end looks
				continue
			}
			_, _ = st.Write(frame(wire.TypeReply, `{"process":{"id":"0123456789abcdefghij","pid":7}}`))
		}
	}()
	p, err := f.box.Start(within(t, 5*time.Second), command("true"))
	require.NoError(t, err)
	require.Equal(t, 7, p.PID())
	require.False(t, <-again)
	require.True(t, <-again)
	require.NoError(t, p.Close())
}

// TestNobodyReadsAcknowledgements: a sandbox that takes none holds up who sends them, and nobody else.
func TestNobodyReadsAcknowledgements(t *testing.T) {
	f := newFake(t)
	f.answer(frame(wire.TypeReply, `{"process":{"id":"0123456789abcdefghij","output":"lossless"}}`), false)
	p, err := f.box.Start(within(t, 30*time.Second), command("true"))
	require.NoError(t, err)
	var sent atomic.Uint64
	over := make(chan struct{})
	go func() {
		defer close(over)
		for n := uint64(1); n <= 20_000; n++ { // more than the stream's window
			p.Ack(supervisor.Offsets{Stdout: n})
			sent.Store(n)
		}
	}()
	require.Eventually(t, func() bool { n := sent.Load(); time.Sleep(50 * time.Millisecond); return n > 0 && n == sent.Load() },
		30*time.Second, time.Millisecond, "it waits")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Ack(supervisor.Offsets{Stdout: 30_000}) // somebody else, who goes on at once
		_ = p.Close()
	}()
	for what, c := range map[string]chan struct{}{"Close": closed, "Ack": over} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal(what + " hangs")
		}
	}
}

func TestForwardsOfAnUnfriendlySandbox(t *testing.T) {
	f := newFake(t)
	called := make(chan string, 10)
	f.box.SetForwardHandler(func(_ context.Context, name string, c net.Conn) {
		called <- name
		_ = c.Close()
	})
	for _, say := range [][]byte{nil, {1}, frame(wire.TypeRequest, "}"), frame(wire.TypeRequest, `{"op":"start"}`), frame(wire.TypeData, "x"), bytes.Repeat([]byte{0xff}, 1000)} {
		st, err := f.session.OpenStream()
		require.NoError(t, err)
		_, _ = st.Write(say)
		require.NoError(t, st.Close())
	}
	st, err := f.session.OpenStream()
	require.NoError(t, err)
	_, err = st.Write(frame(wire.TypeRequest, `{"op":"forward","name":"nats"}`))
	require.NoError(t, err)
	require.Equal(t, "nats", <-called)
	require.Empty(t, called)
}
