package weftinit

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	maxForwarded   = 256 // connections that are carried out at once, per forward
	forwardTimeout = 10 * time.Second
	dialTimeout    = 10 * time.Second
)

// listenForwards listens at the addresses whose connections the node serves. It comes before any
// payload, so that none can take their places.
func (s *supervisor) listenForwards(forwards []forwardSpec) error {
	for _, f := range forwards {
		l, err := net.Listen("tcp", f.addr)
		if err != nil {
			return fmt.Errorf("forward %s: %w", f.name, err)
		}
		go s.acceptForwards(f.name, l)
	}
	return nil
}

func (s *supervisor) acceptForwards(name string, l net.Listener) {
	var open atomic.Int64
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: the listener itself never fails
			continue
		}
		if open.Add(1) > maxForwarded {
			open.Add(-1)
			_ = c.Close()
			continue
		}
		go func() {
			defer open.Add(-1)
			s.carry(name, c)
		}()
	}
}

// carry connects one accepted connection with the node. When the node is away it waits a while.
func (s *supervisor) carry(name string, c net.Conn) {
	defer c.Close()
	session, err := s.sessions.get(forwardTimeout)
	if err != nil {
		return
	}
	stream, err := session.OpenStream()
	if err != nil {
		return
	}
	defer stream.Close()
	if wire.WriteMessage(stream, wire.TypeRequest, wire.Request{Op: wire.OpForward, Name: name}) != nil {
		return
	}
	wire.Pipe(wire.NewConn(stream), c)
}

// dial connects the node to an address in the sandbox.
func (c *call) dial() error {
	switch c.req.Network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return fault.New(fault.Invalid, "network %.20q is neither tcp nor unix", c.req.Network)
	}
	if c.s.dials.Add(1) > maxForwarded {
		c.s.dials.Add(-1)
		return fault.New(fault.Exhausted, "%d connections into the sandbox are open; close some", maxForwarded)
	}
	defer c.s.dials.Add(-1)
	conn, err := connect(c.req.Network, c.req.Addr, c.req.As)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "connect to %.200s in the sandbox: %s", c.req.Addr, errText(err))
	}
	defer conn.Close()
	if err := c.reply(wire.Reply{}); err != nil {
		return nil
	}
	wire.Pipe(wire.NewConn(c.stream), conn)
	return nil
}

// connect dials. Process 1 may connect to no socket of the payload's, for lack of permissions, so a
// unix socket is dialled with those of as or, where nobody is named, of whoever owns it; one of process 1's own is refused.
func connect(network, addr string, as *wire.Identity) (conn net.Conn, err error) {
	if network != "unix" || len(addr) == 0 || addr[0] == '@' {
		return net.DialTimeout(network, addr, dialTimeout)
	}
	if as == nil {
		var st unix.Stat_t
		if err := unix.Stat(addr, &st); err != nil {
			return nil, err
		}
		as = &wire.Identity{UID: st.Uid, GID: st.Gid}
	}
	if as.UID == 0 && !rootInside {
		return nil, unix.EACCES
	}
	err = asUser(*as, func() error {
		fd, err := openAt(unix.AT_FDCWD, addr, unix.O_PATH, 0, 0) // not by way of process 1's own descriptors
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		conn, err = net.DialTimeout(network, fdPath(fd), dialTimeout)
		return err
	})
	return conn, err
}
