package wire

import (
	"encoding/binary"
	"io"
	"log"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// WindowInit is how much weft-init takes in per stream before its reader has to follow. It is
	// yamux's minimum: input is rare, and its memory counts against the sandbox.
	WindowInit = 256 << 10
	// WindowNode is the same on the node, where output flows in.
	WindowNode = 1 << 20
)

// Mux makes the session over a connection whose handshake is done. weft-init is the client.
// There is no keepalive: a unix socket's end is always noticed, and a frozen sandbox must not lose
// its connection.
func Mux(c net.Conn, client bool, logOutput io.Writer) (*yamux.Session, error) {
	cfg := &yamux.Config{
		AcceptBacklog:          1024,
		KeepAliveInterval:      time.Hour, // unused, but has to be positive
		ConnectionWriteTimeout: 10 * time.Second,
		MaxStreamWindowSize:    WindowNode,
		StreamCloseTimeout:     time.Minute,
		Logger:                 log.New(logOutput, "", 0),
	}
	if u, ok := c.(*net.UnixConn); ok {
		// Best effort: the kernel caps it at net.core.wmem_max.
		_ = u.SetWriteBuffer(1 << 20)
	}
	c = &gatherConn{Conn: c}
	if client {
		cfg.MaxStreamWindowSize = WindowInit
		return yamux.Client(c, cfg)
	}
	return yamux.Server(c, cfg)
}

// gatherConn sends a yamux data header together with the body that always follows it, by one
// writev: yamux writes them apart, which costs a system call and wakes the reader twice.
// yamux writes from one goroutine only.
type gatherConn struct {
	net.Conn
	header  [yamuxHeader]byte
	pending bool
}

const (
	yamuxHeader   = 12
	yamuxTypeData = 0
)

func (c *gatherConn) Write(b []byte) (int, error) {
	if c.pending {
		c.pending = false
		bufs := net.Buffers{c.header[:], b}
		n, err := bufs.WriteTo(c.Conn)
		return max(int(n)-yamuxHeader, 0), err
	}
	if len(b) == yamuxHeader && b[1] == yamuxTypeData && binary.BigEndian.Uint32(b[8:]) > 0 {
		copy(c.header[:], b)
		c.pending = true
		return len(b), nil
	}
	return c.Conn.Write(b)
}
