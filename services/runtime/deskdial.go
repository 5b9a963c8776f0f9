package runtime

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// portOperations are those on ports.
func (d *desk) portOperations(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{stream.Op(c, runtime.OpDial, d.Dial)}
}

// dialTimeout bounds the wait for a connection inside.
const dialTimeout = 12 * time.Second

// Dial connects to a port or unix socket inside and carries its bytes, each direction to its own end.
func (d *desk) Dial(ctx context.Context, _ mesh.Caller, req runtime.DialRequest, s *stream.Session) (runtime.DialResult, error) {
	defer d.life.active.moment()()
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	conn, err := d.dial(alive, req)
	if err != nil {
		return runtime.DialResult{}, d.failed(alive, err)
	}
	defer conn.Close()
	if err := s.Send(stream.Connected, workspace.Empty{}); err != nil {
		return runtime.DialResult{}, err
	}
	res, err := carryPort(alive, s, conn, d.life.active.conn(conn))
	return res, d.failed(alive, err)
}

func (d *desk) dial(ctx context.Context, req runtime.DialRequest) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	sup := d.box.Supervisor()
	switch req.Network {
	case "tcp":
		if req.Port < 1 || req.Port > 65535 || req.Path != "" {
			return nil, fault.New(fault.Invalid, `"port" is 1 to 65535, and "path" is for unix sockets`)
		}
		port := strconv.Itoa(req.Port)
		conn, err := sup.Dial(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
			if six, err6 := sup.Dial(ctx, "tcp", net.JoinHostPort("::1", port)); err6 == nil {
				return six, nil
			}
		}
		return conn, err
	case "unix":
		if req.Port != 0 {
			return nil, fault.New(fault.Invalid, `"port" is for tcp`)
		}
		if err := absolute(req.Path); err != nil {
			return nil, err
		}
		return sup.DialAs(ctx, d.box.Payload(), req.Path)
	}
	return nil, fault.New(fault.Invalid, `"network" %.20q is neither tcp nor unix`, req.Network)
}

// carryPort copies both ways until both directions have ended, or one was cut. counted is conn, noting what moves as use.
func carryPort(ctx context.Context, s *stream.Session, conn, counted net.Conn) (res runtime.DialResult, err error) {
	data := s.Channel(stream.Data)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var in, out error
	var both sync.WaitGroup
	both.Go(func() {
		if res.Sent, in = io.Copy(counted, data); in == nil {
			in = conn.(halfCloser).CloseWrite()
		}
		if in != nil { // a half that is cut takes the other along
			_ = conn.Close()
		}
	})
	both.Go(func() {
		if res.Received, out = io.Copy(data, counted); out == nil {
			_ = data.CloseWrite()
			return
		}
		_ = conn.Close()
		_ = data.CloseRead()
	})
	both.Wait()
	if out != nil {
		in = out
	}
	if in != nil {
		return res, fault.Wrap(in, fault.Unavailable, "the connection in the sandbox was cut")
	}
	return res, nil
}

// halfCloser is a connection of which one direction can end.
type halfCloser interface{ CloseWrite() error }
