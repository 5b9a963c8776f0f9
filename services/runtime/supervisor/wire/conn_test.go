package wire

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// streams gives two ends of one yamux stream over a real unix socket pair.
func streams(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	defer l.Close()
	type result struct {
		c   net.Conn
		err error
	}
	accepted := make(chan result, 1)
	go func() { c, err := l.Accept(); accepted <- result{c, err} }()
	a, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	r := <-accepted
	require.NoError(t, r.err)
	init, err := Mux(a, true, io.Discard)
	require.NoError(t, err)
	node, err := Mux(r.c, false, io.Discard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = init.Close(); _ = node.Close() })
	x, err := node.OpenStream()
	require.NoError(t, err)
	require.NoError(t, WriteMessage(x, TypeRequest, Request{})) // there always is one
	y, err := init.AcceptStream()
	require.NoError(t, err)
	_, err = NewReader(y).Message()
	require.NoError(t, err)
	return x, y
}

func TestConn(t *testing.T) {
	x, y := streams(t)
	a, b := NewConn(x), NewConn(y)
	data := bytes.Repeat([]byte("0123456789"), 300_000)
	sent := make(chan error, 1)
	go func() {
		_, err := a.Write(data)
		if err == nil {
			err = a.CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(data, got))
	_, err = a.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)

	// The other direction is open still, and a deadline does not spoil what comes after it.
	require.NoError(t, a.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = a.Read(make([]byte, 1))
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	_, err = b.Write([]byte("back"))
	require.NoError(t, err)
	buf := make([]byte, 10)
	n, err := a.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "back", string(buf[:n]))

	// An end without a word is a cut.
	require.NoError(t, b.Close())
	_, err = a.Read(buf)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestConnRefusesOtherFrames(t *testing.T) {
	for name, frame := range map[string][]byte{
		"output":  {byte(TypeStdout), 0, 0, 0},
		"error":   {byte(TypeError), 0, 0, 0},
		"unknown": {99, 0, 0, 0},
		"long":    {byte(TypeData), 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := streams(t)
			_, err := y.Write(frame)
			require.NoError(t, err)
			_, err = NewConn(x).Read(make([]byte, 1))
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
}
