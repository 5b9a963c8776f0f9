package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
)

// DialPort connects to an address inside a sandbox: a TCP port of its loopback interface ("8080"), or a unix socket (an
// absolute path). The connection has CloseWrite; ctx is for connecting only. It ends with the node's process.
func (c *Client) DialPort(ctx context.Context, sandbox, address string) (net.Conn, error) {
	r, err := dialRequest(address)
	if err != nil {
		return nil, err
	}
	subject, err := c.sbx(sandbox, runtime.OpDial)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	s, err := stream.Open(life, c.conn, subject, r, gone)
	if err == nil {
		if _, e := s.Receive(ctx); e != nil { // "connected" comes first, or nothing but a result
			if err = s.Result(ctx, nil); err == nil {
				err = e
			}
		}
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if s != nil {
			_ = s.Close()
		}
		end()
		if fault.Is(err, fault.Unavailable) {
			err = c.whyAway(ctx, sandbox, err)
		}
		return nil, err
	}
	return &portConn{s: s, c: s.Channel(stream.Data), end: end, address: portAddr{r.Network, address, sandbox}}, nil
}

func dialRequest(address string) (runtime.DialRequest, error) {
	if path.IsAbs(address) {
		return runtime.DialRequest{Network: "unix", Path: address}, nil
	}
	port, err := strconv.Atoi(address)
	if err != nil || port < 1 || port > 65535 {
		return runtime.DialRequest{}, fault.New(fault.Invalid, "address %.80q in a sandbox is neither a port (1 to 65535) nor the absolute path of a socket", address)
	}
	return runtime.DialRequest{Network: "tcp", Port: port}, nil
}

// portConn is a connection into a sandbox.
type portConn struct {
	s       *stream.Session
	c       *stream.Channel
	end     context.CancelFunc
	address portAddr
	once    sync.Once
}

// Read gives io.EOF when the program inside has closed its half.
func (p *portConn) Read(b []byte) (int, error) {
	n, err := p.c.Read(b)
	return n, p.wrap("read", err)
}

// Write sends.
func (p *portConn) Write(b []byte) (int, error) {
	n, err := p.c.Write(b)
	return n, p.wrap("write", err)
}

func (p *portConn) wrap(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return &net.OpError{Op: op, Net: p.address.network, Addr: p.address, Err: err}
}

// CloseWrite ends this half; the other goes on.
func (p *portConn) CloseWrite() error { return p.c.CloseWrite() }

// Close ends both halves. What was written before is delivered, if the other side still takes it.
func (p *portConn) Close() error {
	p.once.Do(func() {
		_ = p.c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		_ = p.c.Flush(ctx)
		_ = p.s.Close()
		p.end()
	})
	return nil
}

// closeWait is how long Close waits for the delivery of what was written.
const closeWait = 2 * time.Second

func (p *portConn) LocalAddr() net.Addr  { return portAddr{p.address.network, "weft", ""} }
func (p *portConn) RemoteAddr() net.Addr { return p.address }

func (p *portConn) SetDeadline(t time.Time) error {
	p.c.SetReadDeadline(t)
	p.c.SetWriteDeadline(t)
	return nil
}

func (p *portConn) SetReadDeadline(t time.Time) error {
	p.c.SetReadDeadline(t)
	return nil
}

func (p *portConn) SetWriteDeadline(t time.Time) error {
	p.c.SetWriteDeadline(t)
	return nil
}

// portAddr is an address in a sandbox.
type portAddr struct{ network, address, sandbox string }

func (a portAddr) Network() string { return a.network }
func (a portAddr) String() string {
	if a.sandbox == "" {
		return a.address
	}
	return a.sandbox + ":" + a.address
}
