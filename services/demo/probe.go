package demo

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// probe listens on addresses of this host, for connections that must not come: a sandbox has no network,
// not even to its host.
type probe struct {
	addresses []string
	listeners []net.Listener
	came      atomic.Int64
	work      sync.WaitGroup
}

// openProbe listens on loopback, and on the first address by which others reach this host, if it has one.
func openProbe() (*probe, error) {
	p := &probe{}
	for _, ip := range append([]string{"127.0.0.1"}, outward()...) {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			p.close()
			return nil, err
		}
		p.listeners = append(p.listeners, l)
		p.addresses = append(p.addresses, l.Addr().String())
		p.work.Go(func() { p.accept(l) })
	}
	return p, nil
}

// outward gives one IPv4 address of this host that is not loopback, or none.
func outward() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return []string{n.IP.String()}
		}
	}
	return nil
}

func (p *probe) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.came.Add(1)
		_ = c.Close()
	}
}

// reachable connects to each address as any process of the host could, so that a connection that does
// not come later means something. It does not count.
func (p *probe) reachable(ctx context.Context) error {
	d := net.Dialer{Timeout: 5 * time.Second}
	for i, a := range p.addresses {
		c, err := d.DialContext(ctx, "tcp", a)
		if err != nil {
			return err
		}
		_ = c.Close()
		for p.came.Load() < int64(i+1) { // accepted a moment later
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
	}
	p.came.Store(0)
	return nil
}

func (p *probe) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.work.Wait()
}
