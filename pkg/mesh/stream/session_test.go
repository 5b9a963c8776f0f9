package stream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// writePieces writes b in pieces of random size, from one byte to several frames.
func writePieces(w io.Writer, rnd *rand.Rand, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), 1+rnd.IntN(1<<rnd.IntN(18)))
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

type sums struct{ Stdin string }

func sum(b []byte) string { return fmt.Sprintf("%d bytes, %x", len(b), sha256.Sum256(b)) }

// TestNothingIsLostOrRepeated runs whole conversations over links that drop, repeat and fail for a
// while. STREAM_SEED reruns one.
func TestNothingIsLostOrRepeated(t *testing.T) {
	seeds := []uint64{}
	for i := range uint64(12) {
		seeds = append(seeds, uint64(time.Now().UnixNano())+i*7919)
	}
	if v, err := strconv.ParseUint(os.Getenv("STREAM_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	weathers := []weather{{}, {drop: 50}, {repeat: 200}, {drop: 20, repeat: 50, cut: 10}}
	for i, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			conversation(t, weathers[i%len(weathers)], seed)
		})
	}
}

func conversation(t *testing.T, w weather, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	stdin, stdout, stderr := randomBytes(rnd, rnd.IntN(3<<20)), randomBytes(rnd, rnd.IntN(4<<20)), randomBytes(rnd, rnd.IntN(100<<10))
	client, server := pair(t, w, seed, quick)
	ctx := testContext(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		var inner sync.WaitGroup
		out, errs := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(seed, 4))
		inner.Go(func() { _ = writePieces(server.Channel("stdout"), out, stdout) })
		inner.Go(func() { _ = writePieces(server.Channel("stderr"), errs, stderr) })
		got, err := io.ReadAll(server.Channel("stdin"))
		inner.Wait()
		server.finish(sums{Stdin: sum(got)}, err)
	})
	in := rand.New(rand.NewPCG(seed, 5))
	wg.Go(func() {
		_ = writePieces(client.Channel("stdin"), in, stdin)
		_ = client.Channel("stdin").CloseWrite()
	})
	var gotErr []byte
	wg.Go(func() { gotErr, _ = io.ReadAll(client.Channel("stderr")) })
	gotOut, err := io.ReadAll(client.Channel("stdout"))
	require.NoError(t, err)
	var res sums
	require.NoError(t, client.Result(ctx, &res))
	wg.Wait()
	require.True(t, bytes.Equal(stdout, gotOut), "stdout")
	require.True(t, bytes.Equal(stderr, gotErr), "stderr")
	require.Equal(t, sum(stdin), res.Stdin)
	select {
	case <-client.Done():
	case <-ctx.Done():
		t.Fatal("the client is not complete")
	}
	require.NoError(t, client.Err())
}

func TestHalfCloseAndResult(t *testing.T) {
	client, server := pair(t, weather{}, 1, quick)
	_, err := client.Channel("stdin").Write([]byte("ping"))
	require.NoError(t, err)
	require.NoError(t, client.Channel("stdin").CloseWrite())
	_, err = client.Channel("stdin").Write([]byte("more"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	b, err := io.ReadAll(server.Channel("stdin"))
	require.NoError(t, err)
	require.Equal(t, "ping", string(b))
	_, err = server.Channel("stdout").Write([]byte("pong")) // the other direction is still open
	require.NoError(t, err)
	server.finish(map[string]int{"code": 3}, nil)
	var r struct{ Code int }
	require.NoError(t, client.Result(testContext(t), &r))
	require.Equal(t, 3, r.Code)
	b, err = io.ReadAll(client.Channel("stdout")) // bytes that came before the result can be read after it
	require.NoError(t, err)
	require.Equal(t, "pong", string(b))
	_, err = client.Channel("stdin").Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	b, err = io.ReadAll(client.Channel("never-used"))
	require.NoError(t, err)
	require.Empty(t, b)
	<-server.Done()
	require.NoError(t, server.Err())
}

func TestFailedHandlerDoesNotLookLikeTheEnd(t *testing.T) {
	client, server := pair(t, weather{drop: 100}, 2, quick)
	_, err := server.Channel("whole").Write([]byte("all"))
	require.NoError(t, err)
	require.NoError(t, server.Channel("whole").CloseWrite())
	_, err = server.Channel("part").Write([]byte("some"))
	require.NoError(t, err)
	server.finish(nil, fault.Wrap(errors.New("disk broke"), fault.Exhausted, "no space left"))
	b, err := io.ReadAll(client.Channel("part"))
	require.Equal(t, "some", string(b))
	require.Equal(t, fault.Exhausted, fault.CodeOf(err))
	require.EqualError(t, err, "no space left") // the cause stays on the other side
	b, err = io.ReadAll(client.Channel("whole"))
	require.NoError(t, err)
	require.Equal(t, "all", string(b))
	require.Equal(t, fault.Exhausted, fault.CodeOf(client.Result(testContext(t), nil)))
}

func TestControlMessages(t *testing.T) {
	client, server := pair(t, weather{drop: 30, repeat: 30}, 3, quick)
	ctx := testContext(t)
	type size struct{ Rows, Cols int }
	for i := range 100 {
		require.NoError(t, client.Send("resize", size{i, 2 * i}))
	}
	for i := range 100 {
		m, err := server.Receive(ctx)
		require.NoError(t, err)
		require.Equal(t, "resize", m.Type)
		require.JSONEq(t, fmt.Sprintf(`{"Rows":%d,"Cols":%d}`, i, 2*i), string(m.Value))
	}
	require.True(t, fault.Is(client.Send("big", strings.Repeat("x", MaxMessage)), fault.Invalid))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := server.Receive(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, server.Send("ready", nil))
	m, err := client.Receive(ctx)
	require.NoError(t, err)
	require.Equal(t, "ready", m.Type)
}

func TestSlowReaderHoldsUpItsChannelOnly(t *testing.T) {
	client, server := pair(t, weather{}, 4, quick)
	wrote := make(chan int, 1)
	go func() {
		n, _ := server.Channel("slow").Write(make([]byte, 8*Window))
		wrote <- n
	}()
	fast := randomBytes(rand.New(rand.NewPCG(1, 1)), 4*Window)
	go func() {
		_, _ = server.Channel("fast").Write(fast)
		_ = server.Channel("fast").CloseWrite()
	}()
	got, err := io.ReadAll(client.Channel("fast"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(fast, got))
	client.mu.Lock()
	held := client.channels["slow"].in.received - client.channels["slow"].in.consumed
	client.mu.Unlock()
	require.LessOrEqual(t, held, int64(Window))
	select {
	case <-wrote:
		t.Fatal("the writer did not wait for the reader")
	default:
	}
	n, err := io.CopyN(io.Discard, client.Channel("slow"), 8*Window)
	require.NoError(t, err)
	require.Equal(t, int64(8*Window), n)
	require.Equal(t, 8*Window, <-wrote)
}

func TestManySmallFramesDoNotCostMuchMemory(t *testing.T) {
	var in inbound
	in.granted = Window
	for i := range int64(100_000) {
		_, err := in.take(i, []byte{byte(i)})
		require.NoError(t, err)
	}
	held := 0
	for _, c := range in.chunks {
		held += cap(c)
	}
	require.Less(t, held, 150_000)
	b := make([]byte, 200_000)
	require.Equal(t, 100_000, in.read(b))
	require.Equal(t, byte(99_999%256), b[99_999])
}

func TestBreakingTheRulesEndsTheStream(t *testing.T) {
	for name, break_ := range map[string]func(client *Session){
		"beyond the limit": func(c *Session) {
			ch := c.Channel("x")
			c.mu.Lock()
			defer c.mu.Unlock()
			setOffset(ch.header, Window)
			_ = c.link.send(natsData(ch, []byte("x")), false)
		},
		"acknowledges what was not sent": func(c *Session) {
			_ = c.link.send(message(frameStatus, status{Channels: map[string]progress{"x": {Received: 5, Limit: 10}}}), false)
		},
		"too many channels": func(c *Session) {
			for i := range MaxChannels + 1 {
				_ = c.link.send(message(frameStatus, status{Channels: map[string]progress{fmt.Sprint("c", i): {Limit: 1}}}), false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, weather{}, 5, quick)
			break_(client)
			<-client.Done()
			require.True(t, fault.Is(client.Err(), fault.Invalid), "%v", client.Err())
			require.True(t, fault.Is(server.Err(), fault.Invalid))
		})
	}
}

func TestTheOtherSideGoesAway(t *testing.T) {
	client, server := pair(t, weather{}, 6, quick)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(client.Channel("stdout"))
		read <- err
	}()
	_, err := server.Channel("stdout").Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, server.Close())
	require.True(t, fault.Is(<-read, fault.Unavailable))
	_, err = client.Channel("stdin").Write([]byte("x"))
	require.True(t, fault.Is(err, fault.Unavailable))

	timing := quick
	timing.Idle = 50 * time.Millisecond
	client, server = pair(t, weather{cut: 1000, drop: 1000}, 7, timing) // nothing gets through
	<-client.Done()
	<-server.Done()
	require.True(t, fault.Is(client.Err(), fault.Unavailable))
}

// TestTheLastWordIsOneFrame: a handler's end costs its caller one message, whatever channels there are.
func TestTheLastWordIsOneFrame(t *testing.T) {
	var sent []*nats.Msg
	s := newSession("s", false, linkFunc(func(m *nats.Msg) { sent = append(sent, m) }), Timing{})
	close(s.stopped)
	for _, name := range []string{"stdin", "stdout", "stderr", channelControl} {
		s.Channel(name)
	}
	_, err := s.Channel("stdout").Write([]byte("said"))
	require.NoError(t, err)
	s.finish(sums{}, nil)
	require.Len(t, sent, 2, "the output and the result")
	last, err := decode(sent[1].Header, sent[1].Data)
	require.NoError(t, err)
	require.Equal(t, channelResult, last.channel)
	require.Equal(t, endEOF, last.end)

	client := newSession("c", true, linkFunc(func(*nats.Msg) {}), Timing{})
	close(client.stopped)
	for _, m := range sent {
		client.receive(m)
	}
	got, err := io.ReadAll(client.Channel("stdout"))
	require.NoError(t, err)
	require.Equal(t, "said", string(got))
	require.NoError(t, client.Result(testContext(t), &sums{}))
	require.NoError(t, client.Close())
	require.NoError(t, s.Close())
}

type linkFunc func(*nats.Msg)

func (f linkFunc) send(m *nats.Msg, _ bool) error {
	f(&nats.Msg{Header: maps.Clone(m.Header), Data: bytes.Clone(m.Data)})
	return nil
}
