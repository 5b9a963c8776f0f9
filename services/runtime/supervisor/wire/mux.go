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

// gatherConn sends together what yamux writes apart, and what would wake the reader twice: a data header with the body that
// always follows it, and a stream's first frame, by which it is opened or accepted, with what is said on it next.
// yamux writes from one goroutine only.
type gatherConn struct {
	net.Conn
	held    []byte // first frames
	header  [yamuxHeader]byte
	pending bool
	out     net.Buffers
}

const (
	yamuxHeader     = 12
	yamuxTypeData   = 0
	yamuxTypeWindow = 1
	yamuxSYN        = 1
	yamuxACK        = 2

	// maxHeld bounds how many first frames wait for company: yamux opens a thousand streams that were not accepted, and
	// some are accepted long before they are answered.
	maxHeld = 16 * yamuxHeader
)

func (c *gatherConn) Write(b []byte) (int, error) {
	switch {
	case c.pending:
		c.pending = false
		return c.send(len(b), c.header[:], b)
	case len(b) == yamuxHeader && b[1] == yamuxTypeData && binary.BigEndian.Uint32(b[8:]) > 0:
		copy(c.header[:], b)
		c.pending = true
		return len(b), nil
	case len(c.held) < maxHeld && first(b):
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.send(len(b), b)
}

// first reports whether a frame does nothing but open a stream, on which a request follows at once, or accept one. One that
// accepts and widens a window is not held back: the other side may need it before it hears anything else.
func first(b []byte) bool {
	if len(b) != yamuxHeader || b[1] != yamuxTypeWindow {
		return false
	}
	flags := binary.BigEndian.Uint16(b[2:])
	return flags == yamuxSYN || flags == yamuxACK && binary.BigEndian.Uint32(b[8:]) == 0
}

// send writes what was held and bs, of which the last n bytes are what yamux wants to know of.
func (c *gatherConn) send(n int, bs ...[]byte) (int, error) {
	c.out = c.out[:0]
	before := 0
	if len(c.held) > 0 {
		c.out, before = append(c.out, c.held), len(c.held)
	}
	for _, b := range bs {
		c.out, before = append(c.out, b), before+len(b)
	}
	before -= n
	all := c.out
	sent, err := all.WriteTo(c.Conn)
	clear(c.out[:cap(c.out)])
	c.held = c.held[:0]
	return max(int(sent)-before, 0), err
}
