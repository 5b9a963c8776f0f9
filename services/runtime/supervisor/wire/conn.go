package wire

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Conn carries a connection over a stream, as frames of data, so that each direction can end by
// itself (CloseWrite) and a cut is told from an end: Read gives io.ErrUnexpectedEOF for the first.
type Conn struct {
	net.Conn // the stream

	reader struct {
		sync.Mutex
		header [HeaderSize]byte
		have   int // bytes of header read
		left   int // bytes of the frame's body not read yet
		err    error
	}
	writer struct {
		sync.Mutex
		buf    []byte
		closed bool
	}
}

// NewConn carries a connection over stream, whose requests and replies are done.
func NewConn(stream net.Conn) *Conn { return &Conn{Conn: stream} }

// errRefused replaces an Error frame: what it says was for the one who opened the stream.
var errRefused = errors.New("the other side refused or cut the connection")

const connChunk = 32 << 10

// Read gives data as it comes. After a timeout it may be called again.
func (c *Conn) Read(p []byte) (int, error) {
	r := &c.reader
	r.Lock()
	defer r.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil && r.left == 0 {
		if err := c.readHeader(); err != nil {
			return 0, err
		}
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := c.Conn.Read(p[:min(len(p), r.left)])
	r.left -= n
	if n > 0 {
		return n, nil
	}
	return 0, cut(err)
}

func (c *Conn) readHeader() error {
	r := &c.reader
	for r.have < HeaderSize {
		n, err := c.Conn.Read(r.header[r.have:])
		r.have += n
		if err != nil && n == 0 {
			return cut(err)
		}
	}
	r.have = 0
	t, n, err := parseHeader(r.header)
	switch {
	case err != nil:
		r.err = err
	case t == TypeData:
		r.left = n
	case t == TypeEOF:
		r.err = io.EOF
	case t == TypeError:
		r.err = errRefused
	default:
		r.err = ErrUnexpected
	}
	return nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write sends p.
func (c *Conn) Write(p []byte) (int, error) {
	w := &c.writer
	w.Lock()
	defer w.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	sent := 0
	for sent < len(p) {
		chunk := p[sent:min(len(p), sent+connChunk)]
		if need := HeaderSize + len(chunk); cap(w.buf) < need {
			w.buf = make([]byte, need)
		}
		b := w.buf[:HeaderSize+len(chunk)]
		PutHeader(b, TypeData, len(chunk))
		copy(b[HeaderSize:], chunk)
		if _, err := c.Conn.Write(b); err != nil {
			return sent, err
		}
		sent += len(chunk)
	}
	return sent, nil
}

// CloseWrite ends this direction; the other goes on.
func (c *Conn) CloseWrite() error {
	w := &c.writer
	w.Lock()
	defer w.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return WriteFrame(c.Conn, TypeEOF, nil)
}

// halfCloser is a connection of which one direction can end.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// Pipe copies between two connections, both ways, until both directions ended or one was cut, and
// closes both. Each direction's end is passed on by itself.
func Pipe(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Add(2)
	one := func(dst, src net.Conn) {
		defer wg.Done()
		buf := make([]byte, connChunk)
		_, err := io.CopyBuffer(onlyWriter{dst}, onlyReader{src}, buf)
		h, ok := dst.(halfCloser)
		if err != nil || !ok || h.CloseWrite() != nil {
			_ = a.Close()
			_ = b.Close()
		}
	}
	go one(a, b)
	go one(b, a)
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
}

// These keep io.Copy from splice and friends, which would hold pipes of their own per connection.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
