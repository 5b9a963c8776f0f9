package wire

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/require"
)

// counted counts the writes that reach a connection.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// muxes gives the two ends of a session, weft-init's first.
func muxes(t *testing.T) (client, server *yamux.Session) {
	t.Helper()
	a, b := net.Pipe()
	client, err := Mux(a, true, io.Discard)
	require.NoError(t, err)
	server, err = Mux(b, false, io.Discard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

// sends counts what a gatherConn sends for the frames that are given to it, in number of writes to the connection.
func sends(t *testing.T, frames ...[]byte) int64 {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	go func() { _, _ = io.Copy(io.Discard, b) }()
	var n atomic.Int64
	g := &gatherConn{Conn: counted{a, &n}}
	for _, f := range frames {
		w, err := g.Write(f)
		require.NoError(t, err)
		require.Equal(t, len(f), w)
	}
	return n.Load()
}

func frame(typ, flags, length byte) []byte {
	return []byte{0, typ, 0, flags, 0, 0, 0, 2, 0, 0, 0, length}
}

func TestGatherHoldsFirstFrames(t *testing.T) {
	open, accept := frame(yamuxTypeWindow, yamuxSYN, 0), frame(yamuxTypeWindow, yamuxACK, 0)
	require.Zero(t, sends(t, open), "a request follows")
	require.Zero(t, sends(t, accept), "an answer follows")
	require.Zero(t, sends(t, frame(yamuxTypeWindow, yamuxSYN, 7)), "a request follows here, too")
	require.EqualValues(t, 1, sends(t, frame(yamuxTypeWindow, yamuxACK, 7)), "the other side may wait for the window")
	require.EqualValues(t, 1, sends(t, frame(yamuxTypeWindow, 0, 7)))
	const fin = 4
	require.EqualValues(t, 1, sends(t, frame(yamuxTypeWindow, yamuxSYN|fin, 0)), "nothing follows")
	// These go out with what comes next: first frame, header, body; a connection that has no writev sees three.
	require.EqualValues(t, 3, sends(t, open, frame(yamuxTypeData, 0, 2), []byte("hi")))
	require.EqualValues(t, 2, sends(t, open, frame(yamuxTypeWindow, fin, 0)), "also with the stream's end")
}

func TestGatherHoldsFewFirstFrames(t *testing.T) {
	var many [][]byte
	for range 17 {
		many = append(many, frame(yamuxTypeWindow, yamuxACK, 0))
	}
	require.EqualValues(t, 2, sends(t, many...), "the seventeenth takes the sixteen along")
}

// More streams than yamux lets be unaccepted are opened, although nobody answers on any.
func TestManyStreamsUnanswered(t *testing.T) {
	client, server := muxes(t)
	const streams = 1100
	accepted := make(chan error, 1)
	go func() {
		for range streams {
			st, err := client.AcceptStream()
			if err == nil {
				_, err = NewReader(st).Message()
			}
			if err != nil {
				accepted <- err
				return
			}
		}
		accepted <- nil
	}()
	for range streams {
		st, err := server.OpenStream()
		require.NoError(t, err)
		require.NoError(t, WriteMessage(st, TypeRequest, Request{Op: OpWait}))
	}
	require.NoError(t, <-accepted)
}

// What weft-init sends on a stream of its own reaches a node that says nothing, beyond the first window.
func TestUploadToASilentNode(t *testing.T) {
	client, server := muxes(t)
	got := make(chan int64, 1)
	go func() {
		st, err := server.AcceptStream()
		if err != nil {
			got <- -1
			return
		}
		n, _ := io.Copy(io.Discard, st)
		got <- n
	}()
	st, err := client.OpenStream()
	require.NoError(t, err)
	const size = 3 << 20
	_, err = st.Write(make([]byte, size))
	require.NoError(t, err)
	require.NoError(t, st.Close())
	require.EqualValues(t, size, <-got)
}
