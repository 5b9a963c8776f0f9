package wire

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testID = "0123456789abcdefghij"

// shake does a handshake between two ends that may disagree.
func shake(t *testing.T, initID, nodeID string, initKey, nodeKey Key) (initErr, nodeErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan error, 1)
	go func() {
		err := HandshakeInit(a, initID, initKey, time.Second)
		if err != nil {
			_ = a.Close()
		}
		done <- err
	}()
	defer b.Close()
	if nodeErr = HandshakeNode(b, nodeID, nodeKey, time.Second); nodeErr != nil {
		_ = b.Close()
	}
	return <-done, nodeErr
}

func TestHandshake(t *testing.T) {
	key := NewKey()
	initErr, nodeErr := shake(t, testID, testID, key, key)
	require.NoError(t, initErr)
	require.NoError(t, nodeErr)

	initErr, nodeErr = shake(t, testID, testID, NewKey(), key)
	require.Error(t, initErr, "init sees first that the node has another key")
	require.Error(t, nodeErr)

	initErr, nodeErr = shake(t, testID, strings.Repeat("z", 20), key, key)
	require.Error(t, initErr)
	require.ErrorIs(t, nodeErr, ErrHandshake)

	require.Equal(t, "[key]", key.String())
}

// recorder keeps what went over a connection.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

func TestReplayAndReflection(t *testing.T) {
	key := NewKey()
	a, b := net.Pipe()
	rec := &recorder{Conn: a}
	done := make(chan error, 1)
	go func() { done <- HandshakeInit(rec, testID, key, time.Second) }()
	require.NoError(t, HandshakeNode(b, testID, key, time.Second))
	require.NoError(t, <-done)
	_ = a.Close()
	_ = b.Close()

	// All that init said, said again to a new node.
	a, b = net.Pipe()
	go func() {
		_, _ = a.Write(rec.sent.Bytes()[:helloSize])
		_, _ = io.ReadFull(a, make([]byte, challengeLen))
		_, _ = a.Write(rec.sent.Bytes()[helloSize:])
	}()
	require.ErrorIs(t, HandshakeNode(b, testID, key, time.Second), ErrHandshake)
	_ = a.Close()
	_ = b.Close()

	// The node's own proof, sent back to it.
	a, b = net.Pipe()
	go func() {
		_, _ = a.Write(rec.sent.Bytes()[:helloSize])
		var c [challengeLen]byte
		_, _ = io.ReadFull(a, c[:])
		_, _ = a.Write(c[nonceSize:])
	}()
	require.ErrorIs(t, HandshakeNode(b, testID, key, time.Second), ErrHandshake)
	_ = a.Close()
	_ = b.Close()
}

func TestHandshakeIsBounded(t *testing.T) {
	for name, say := range map[string][]byte{
		"silence":         nil,
		"garbage":         bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10),
		"half a hello":    []byte("WFT\x01" + testID),
		"another version": append([]byte("WFT\x02"+testID), make([]byte, nonceSize)...),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			go func() { _, _ = a.Write(say) }()
			t0 := time.Now()
			require.Error(t, HandshakeNode(b, testID, NewKey(), 100*time.Millisecond))
			require.Less(t, time.Since(t0), 5*time.Second)
		})
	}
}

func FuzzHandshakeNode(f *testing.F) {
	f.Add([]byte("WFT\x01"+testID), []byte("proof"))
	key := NewKey()
	f.Fuzz(func(t *testing.T, hello, proof []byte) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go func() {
			_, _ = a.Write(hello)
			_, _ = io.ReadFull(a, make([]byte, challengeLen))
			_, _ = a.Write(proof)
			_ = a.Close()
		}()
		require.Error(t, HandshakeNode(b, testID, key, 100*time.Millisecond))
	})
}
