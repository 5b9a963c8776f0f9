package stream

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is a timing under which losses are found within milliseconds.
var quick = Timing{
	Keepalive: 30 * time.Millisecond, Silence: 80 * time.Millisecond, Idle: 20 * time.Second,
	Probe: 20 * time.Millisecond, Delay: 2 * time.Millisecond, Gone: 10 * time.Second,
}

// weather says what a pipe does to messages, of 1000.
type weather struct {
	drop, repeat int
	cut          int // begins an outage in which the next up to 50 messages are lost
}

// pipe carries frames one way, in order, and loses some of them as core NATS may.
type pipe struct {
	to   *Session
	w    weather
	mu   sync.Mutex
	cond sync.Cond
	q    []*nats.Msg
	rnd  *rand.Rand
	out  int
	shut bool
	done chan struct{}
}

func newPipe(w weather, seed uint64) *pipe {
	p := &pipe{w: w, rnd: rand.New(rand.NewPCG(seed, 1)), done: make(chan struct{})}
	p.cond.L = &p.mu
	return p
}

func (p *pipe) send(m *nats.Msg, _ bool) error {
	h := nats.Header{}
	for k, v := range m.Header {
		h[k] = append([]string(nil), v...)
	}
	c := &nats.Msg{Header: h, Data: append([]byte(nil), m.Data...)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == 0 && p.rnd.IntN(1000) < p.w.cut {
		p.out = p.rnd.IntN(50)
	}
	switch {
	case p.out > 0:
		p.out--
	case p.rnd.IntN(1000) < p.w.drop:
	default:
		p.q = append(p.q, c)
		if p.rnd.IntN(1000) < p.w.repeat {
			p.q = append(p.q, c)
		}
	}
	p.cond.Signal()
	return nil
}

func (p *pipe) run() {
	defer close(p.done)
	for {
		p.mu.Lock()
		for len(p.q) == 0 && !p.shut {
			p.cond.Wait()
		}
		if p.shut {
			p.mu.Unlock()
			return
		}
		m := p.q[0]
		p.q = p.q[1:]
		p.mu.Unlock()
		p.to.receive(m)
	}
}

func (p *pipe) close() {
	p.mu.Lock()
	p.shut = true
	p.cond.Signal()
	p.mu.Unlock()
	<-p.done
}

// pair gives two sessions joined by pipes, until the test ends.
func pair(t testing.TB, w weather, seed uint64, timing Timing) (client, server *Session) {
	there, back := newPipe(w, seed), newPipe(w, seed+1000)
	client = newSession("c", true, there, timing)
	server = newSession("s", false, back, timing)
	there.to, back.to = server, client
	go there.run()
	go back.run()
	for _, s := range []*Session{client, server} {
		go func() { s.run(nil); close(s.stopped) }()
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		there.close()
		back.close()
	})
	return client, server
}

func natsData(c *Channel, b []byte) *nats.Msg { return &nats.Msg{Header: c.header, Data: b} }
