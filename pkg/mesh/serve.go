package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel/attribute"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Caller is who asks, as the server pinned it in the subject. On the int and node planes only
// Principal is set: the name of the service or node.
type Caller struct {
	Tenant, Workspace, Principal string
}

// maxInFlight bounds the requests that one Served works on at once; more are told to come again.
const maxInFlight = 1024

// headerKeepalive marks an answer of a many-reply operation that carries nothing but life.
const headerKeepalive = "Weft-Keepalive"

// Endpoint is one operation as it can be served. Op and Many make them.
type Endpoint struct {
	name    string
	timeout time.Duration // of one call; 0 for many-reply operations, which end when they end
	call    func(ctx context.Context, by Caller, body []byte, r *replier) error
}

// Op is an operation with one answer. fn gets a context that ends after timeout, or sooner if the
// caller waits less. Its error's code and sentence are sent, the cause is logged.
func Op[Req, Rep any](name string, timeout time.Duration, fn func(ctx context.Context, by Caller, req Req) (Rep, error)) Endpoint {
	return Endpoint{name: name, timeout: timeout, call: func(ctx context.Context, by Caller, body []byte, r *replier) error {
		req, err := Decode[Req](body)
		if err != nil {
			return err
		}
		rep, err := fn(ctx, by, req)
		if err != nil {
			return err
		}
		b, err := json.Marshal(rep)
		if err != nil {
			return fmt.Errorf("reply of %s: %w", name, err)
		}
		if len(b) > schemas.MaxBody {
			return fault.New(fault.Exhausted, "the answer is larger than %d bytes; ask for less at a time", schemas.MaxBody)
		}
		return r.send(b, nil)
	}}
}

// Many is an operation with many answers: fn sends them one by one and returns when all are sent. The
// caller's going away shows as an error of send. Keepalives go out by themselves.
func Many[Req, Rep any](name string, fn func(ctx context.Context, by Caller, req Req, send func(Rep) error) error) Endpoint {
	return Endpoint{name: name, call: func(ctx context.Context, by Caller, body []byte, r *replier) error {
		req, err := Decode[Req](body)
		if err != nil {
			return err
		}
		stop := r.keepalive(ctx)
		err = fn(ctx, by, req, func(rep Rep) error {
			b, err := json.Marshal(rep)
			if err != nil {
				return err
			}
			return r.send(b, nil)
		})
		stop()
		if err != nil {
			return err
		}
		return r.send(nil, nil)
	}}
}

// Raw is an operation that answers by itself, as byte streams do. fn gets the message as it came; the
// subject is parsed into by and checked, the reply subject is an inbox.
func Raw(name string, fn func(ctx context.Context, by Caller, m *nats.Msg) error) Endpoint {
	return Endpoint{name: name, call: func(ctx context.Context, by Caller, _ []byte, r *replier) error {
		return fn(ctx, by, r.msg)
	}}
}

// Served is a set of operations being served. Stop ends it and waits for the calls under way.
type Served struct {
	svc    micro.Service
	subs   []*nats.Subscription
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	closed bool
}

// ServeReq serves operations of service to principals, in a queue group with its other replicas.
func (c *Conn) ServeReq(service string, eps ...Endpoint) (*Served, error) {
	return c.serve(service, schemas.Prefix+"req.*.*.*."+service+".", "weft", eps)
}

// ServeInt serves operations of service to services, nodes and the operator.
func (c *Conn) ServeInt(service string, eps ...Endpoint) (*Served, error) {
	return c.serve(service+"-int", schemas.Prefix+"int.*."+service+".", "weft", eps)
}

// ServeNode serves operations of one node to services.
func (c *Conn) ServeNode(node string, eps ...Endpoint) (*Served, error) {
	return c.serve("node-"+node, schemas.Prefix+"node."+node+".*.", "", eps)
}

// ServeSandbox serves operations on one sandbox: the node that holds it subscribes, NATS finds it.
func (c *Conn) ServeSandbox(tenant, workspace, sandbox string, eps ...Endpoint) (*Served, error) {
	if _, err := schemas.Sbx(tenant, workspace, sandbox, "x", "x"); err != nil {
		return nil, err
	}
	s, run := c.newServed()
	prefix := schemas.Prefix + "sbx." + tenant + "." + workspace + "." + sandbox + ".*."
	handlers := map[string]func(*nats.Msg){}
	for _, ep := range eps {
		handlers[ep.name] = s.handler(c, "runtime", ep, run)
	}
	// One subscription for all: a sandbox has dozens of operations, and is there a millisecond sooner.
	sub, err := c.nc.Subscribe(prefix+"*", func(m *nats.Msg) {
		op := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if h := handlers[op]; h != nil {
			h(m)
		} else if answerable(m.Reply) {
			(&replier{c: c, msg: m}).fail(fault.New(fault.NotFound, "a sandbox has no operation %.40q", op))
		}
	})
	if err != nil {
		s.Stop()
		return nil, err
	}
	s.subs = append(s.subs, sub)
	return s, c.flush(s)
}

func (c *Conn) newServed() (*Served, context.Context) {
	run, cancel := context.WithCancel(context.Background())
	return &Served{cancel: cancel}, run
}

func (c *Conn) serve(name, prefix, queue string, eps []Endpoint) (*Served, error) {
	s, run := c.newServed()
	var err error
	s.svc, err = micro.AddService(c.nc, micro.Config{Name: name, Version: "1.0.0", QueueGroup: queue, QueueGroupDisabled: queue == ""})
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", name, err)
	}
	for _, ep := range eps {
		h := s.handler(c, name, ep, run)
		err := s.svc.AddEndpoint(ep.name, micro.HandlerFunc(func(r micro.Request) {
			h(&nats.Msg{Subject: r.Subject(), Reply: r.Reply(), Header: nats.Header(r.Headers()), Data: r.Data()})
		}), micro.WithEndpointSubject(prefix+ep.name))
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("serve %s.%s: %w", name, ep.name, err)
		}
	}
	return s, c.flush(s)
}

// flush makes sure the server knows of the subscriptions before anybody is told that they are there.
func (c *Conn) flush(s *Served) error {
	if err := c.nc.FlushTimeout(5 * time.Second); err != nil {
		s.Stop()
		return wrapNATS(err, "subscriptions")
	}
	return nil
}

// handler gives the function that takes each message of an endpoint. It starts a goroutine per call,
// so that a slow one delays no other, up to maxInFlight.
func (s *Served) handler(c *Conn, service string, ep Endpoint, run context.Context) func(*nats.Msg) {
	slots := make(chan struct{}, maxInFlight)
	return func(m *nats.Msg) {
		if !answerable(m.Reply) {
			c.log.Warn("request without an inbox to answer to", "subject", m.Subject)
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			s.mu.Unlock()
			(&replier{c: c, msg: m}).fail(fault.New(fault.Unavailable, "too many requests at once; try again"))
			return
		}
		s.wg.Add(1)
		s.mu.Unlock()
		go func() {
			defer func() { <-slots; s.wg.Done() }()
			c.answer(run, service, ep, m)
		}()
	}
}

// answerable reports whether a reply may be sent there: only to inboxes, and to the reply subjects that
// the server makes between accounts. Anything else would let a caller write where it may not.
func answerable(reply string) bool {
	return strings.HasPrefix(reply, "_INBOX.") || strings.HasPrefix(reply, "_R_.")
}

// answer runs one call.
func (c *Conn) answer(run context.Context, service string, ep Endpoint, m *nats.Msg) {
	start := time.Now()
	r := &replier{c: c, msg: m}
	by, err := caller(m.Subject)
	if err == nil {
		ctx := Extract(run, m.Header)
		var cancel context.CancelFunc = func() {}
		if ep.timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, callTimeout(ep.timeout, m.Header))
		}
		var end func(error)
		ctx, end = Span(ctx, service+" "+ep.name, attribute.String("weft.tenant", by.Tenant), attribute.String("weft.principal", by.Principal))
		err = c.guard(ctx, ep, by, m, r)
		end(err)
		cancel()
	}
	if err != nil {
		r.fail(err)
	}
	c.metrics.observe(service, ep.name, err, time.Since(start))
}

// guard turns a panic of an operation into an internal error: one bad request must not end the process.
func (c *Conn) guard(ctx context.Context, ep Endpoint, by Caller, m *nats.Msg, r *replier) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in %s: %v", ep.name, p)
			c.log.Error("panic", "operation", ep.name, "panic", p, "stack", stack())
		}
	}()
	return ep.call(ctx, by, m.Data, r)
}

func callTimeout(most time.Duration, h nats.Header) time.Duration {
	if ms, err := strconv.ParseInt(h.Get(schemas.HeaderDeadline), 10, 64); err == nil && ms > 0 && ms < int64(most/time.Millisecond) {
		return time.Duration(ms) * time.Millisecond
	}
	return most
}

// caller reads who asks from the subject.
func caller(subject string) (Caller, error) {
	// Streams go on below an operation's subject; the caller stands before it.
	s, err := schemas.ParseSubject(subject)
	if err != nil {
		return Caller{}, fault.Wrap(err, fault.Invalid, "bad subject: %v", err)
	}
	switch s.Plane {
	case schemas.PlaneInt, schemas.PlaneNode:
		return Caller{Principal: s.Caller}, nil
	default:
		return Caller{Tenant: s.Tenant, Workspace: s.Workspace, Principal: s.Principal}, nil
	}
}

// Decode reads a JSON body. Unknown fields are tolerated; a wrong type is named with its field.
func Decode[T any](body []byte) (T, error) {
	var v T
	if len(body) == 0 {
		body = []byte("{}")
	}
	if !utf8.Valid(body) { // the decoder would replace it in silence
		return v, fault.New(fault.Invalid, "the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	err := dec.Decode(&v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the JSON value")
		}
	}
	if err == nil {
		return v, nil
	}
	var te *json.UnmarshalTypeError
	var se *json.SyntaxError
	switch {
	case errors.As(err, &te) && te.Field != "":
		return v, fault.New(fault.Invalid, "field %q must be a %s, not a %s", te.Field, te.Type, te.Value)
	case errors.As(err, &te):
		return v, fault.New(fault.Invalid, "the body must be a JSON object, not a %s", te.Value)
	case errors.As(err, &se):
		return v, fault.New(fault.Invalid, "malformed JSON at byte %d: %v", se.Offset, se)
	}
	return v, fault.New(fault.Invalid, "malformed JSON: %v", err)
}

// Stop takes no more calls, ends those under way by their context, and waits for them.
func (s *Served) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.svc != nil {
		_ = s.svc.Stop()
	}
	for _, sub := range s.subs {
		_ = sub.Unsubscribe()
	}
	s.cancel()
	s.wg.Wait()
}
