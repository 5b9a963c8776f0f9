package mesh

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// keepaliveEvery is well under the server's limit for silence on a many-reply request (30 s).
const keepaliveEvery = 8 * time.Second

// replier answers one request.
type replier struct {
	c   *Conn
	msg *nats.Msg
	mu  sync.Mutex
}

func (r *replier) send(body []byte, h nats.Header) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return wrapNATS(r.c.nc.PublishMsg(&nats.Msg{Subject: r.msg.Reply, Data: body, Header: h}), r.msg.Subject)
}

// fail sends err's code and sentence, and logs its cause here, where it stops.
func (r *replier) fail(err error) {
	code, text := fault.Public(err)
	if code == fault.Internal {
		r.c.log.Error("operation failed", "subject", r.msg.Subject, "err", err)
	} else {
		r.c.log.Debug("operation refused", "subject", r.msg.Subject, "code", code, "err", err)
	}
	h := nats.Header{}
	h.Set(schemas.HeaderErrorCode, string(code))
	h.Set(schemas.HeaderError, oneLine(text))
	_ = r.send([]byte("{}"), h)
}

// keepalive sends signs of life until stop.
func (r *replier) keepalive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(keepaliveEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if r.send([]byte("{}"), nats.Header{headerKeepalive: []string{"1"}}) != nil {
					return
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// oneLine keeps a sentence within a header: no line breaks, at most 1 KiB.
func oneLine(s string) string {
	b := []byte(s)
	if len(b) > 1024 {
		b = b[:1024]
	}
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return string(b)
}

func stack() string { return string(debug.Stack()) }
