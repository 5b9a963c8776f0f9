package manager

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

const maxMessageWait = 30 * time.Second

// Messages reads messages to the caller or to a channel, oldest first. Reading removes nothing.
func (s *Service) Messages(ctx context.Context, by mesh.Caller, req workspace.MessagesRequest) (workspace.Page[workspace.Message], error) {
	page := workspace.Page[workspace.Message]{Items: []workspace.Message{}}
	n, err := limit(req.Limit)
	if err != nil {
		return page, err
	}
	if req.To == "" {
		req.To = by.Principal
	}
	if err := mayRead(by, req.To); err != nil {
		return page, err
	}
	if req.WaitMS < 0 || req.WaitMS > maxMessageWait.Milliseconds() {
		return page, fault.New(fault.Invalid, `field "wait_ms" must be 0 to %d`, maxMessageWait.Milliseconds())
	}
	own := req.To == by.Principal
	if own && req.After == 0 && !req.FromStart {
		c, _, err := s.cursor(ctx, by)
		if err != nil {
			return page, err
		}
		req.After = c.Done
	}
	if page.Items, err = s.readMessages(ctx, by, req, n); err != nil {
		return page, err
	}
	if own && len(page.Items) > 0 {
		last := page.Items[len(page.Items)-1].Sequence
		err = s.moveCursor(ctx, by, func(c *cursor) bool {
			if c.Read >= last {
				return false
			}
			c.Read = last
			return true
		})
	}
	return page, err
}

func mayRead(by mesh.Caller, to string) error {
	if err := invalid(schemas.CheckName("recipient", to)); err != nil {
		return err
	}
	if to != by.Principal && !strings.HasPrefix(to, workspace.ChannelPrefix) {
		return fault.New(fault.Denied, "messages to %s are for %s alone; channels begin with %s", to, to, workspace.ChannelPrefix)
	}
	return nil
}

// readMessages gives up to n messages after req.After; if there is none it waits for the first.
func (s *Service) readMessages(ctx context.Context, by mesh.Caller, req workspace.MessagesRequest, n int) ([]workspace.Message, error) {
	stream := "MSG-" + by.Tenant
	cons, err := s.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: schemas.Prefix + "msg." + by.Tenant + "." + by.Workspace + "." + req.To + ".*",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: req.After + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * maxMessageWait,
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "messages can't be read now; try again")
	}
	defer func() {
		dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = s.js.DeleteConsumer(dctx, stream, cons.CachedInfo().Name)
	}()
	out := []workspace.Message{}
	size := 0
	take := func(b jetstream.MessageBatch) {
		for m := range b.Messages() {
			if size > maxPageBytes {
				continue
			}
			if msg, ok := readMessage(m); ok {
				out = append(out, msg)
				size += len(m.Data())*4/3 + 512
			}
		}
	}
	b, err := cons.FetchNoWait(n)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "messages can't be read now; try again")
	}
	if take(b); len(out) > 0 || req.WaitMS == 0 {
		return out, nil
	}
	wait := time.Duration(req.WaitMS) * time.Millisecond
	if t, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(t)-200*time.Millisecond), time.Millisecond)
	}
	b, err = cons.Fetch(1, jetstream.FetchMaxWait(wait))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "messages can't be read now; try again")
	}
	if take(b); len(out) > 0 && n > 1 {
		if b, err := cons.FetchNoWait(n - 1); err == nil {
			take(b)
		}
	}
	return out, nil
}

func readMessage(m jetstream.Msg) (workspace.Message, bool) {
	s, err := schemas.ParseSubject(m.Subject())
	md, merr := m.Metadata()
	if err != nil || merr != nil {
		return workspace.Message{}, false
	}
	return workspace.Message{Sequence: md.Sequence.Stream, To: s.To, From: s.Principal, Time: md.Timestamp.UTC(), Headers: flat(m.Headers()), Body: m.Data()}, true
}

// flat gives the first value of each header.
func flat(h nats.Header) map[string]string {
	var out map[string]string
	for k, v := range h {
		if len(v) > 0 {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v[0]
		}
	}
	return out
}

// cursor is how far a principal has read its inbox, and how far it had when a task of it last completed.
type cursor struct {
	Read uint64 `json:"read"`
	Done uint64 `json:"done"`
}

// cachedBucket looks a bucket up once: looking it up is a request of its own.
type cachedBucket struct {
	mu sync.Mutex
	kv jetstream.KeyValue
}

func (c *cachedBucket) get(ctx context.Context, js jetstream.JetStream, name string) (jetstream.KeyValue, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kv == nil {
		kv, err := js.KeyValue(ctx, name)
		if err != nil {
			return nil, err
		}
		c.kv = kv
	}
	return c.kv, nil
}

func cursorKey(by mesh.Caller) string { return by.Tenant + "." + by.Workspace + "." + by.Principal }

func (s *Service) cursor(ctx context.Context, by mesh.Caller) (c cursor, rev uint64, err error) {
	kv, err := s.cursors.get(ctx, s.js, provision.CursorsBucket)
	if err != nil {
		return c, 0, err
	}
	e, err := kv.Get(ctx, cursorKey(by))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, err
	}
	return c, e.Revision(), json.Unmarshal(e.Value(), &c)
}

// moveCursor changes a cursor by compare-and-set; change says whether there is anything to change.
func (s *Service) moveCursor(ctx context.Context, by mesh.Caller, change func(*cursor) bool) error {
	kv, err := s.cursors.get(ctx, s.js, provision.CursorsBucket)
	if err != nil {
		return err
	}
	for range 16 {
		c, rev, err := s.cursor(ctx, by)
		if err != nil {
			return err
		}
		if !change(&c) {
			return nil
		}
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if rev == 0 {
			_, err = kv.Create(ctx, cursorKey(by), b)
		} else {
			_, err = kv.Update(ctx, cursorKey(by), b, rev)
		}
		var api *jetstream.APIError
		if err == nil || (!errors.As(err, &api) && !errors.Is(err, jetstream.ErrKeyExists)) {
			return err
		}
	}
	return fault.New(fault.Conflict, "the inbox is read by too many at once; try again")
}

// advanceCursor moves the point from which a principal reads to what it had read when its task completed.
func (v *view) advanceCursor(ctx context.Context, t *workspace.Task) error {
	if t.Run == nil {
		return nil
	}
	by := mesh.Caller{Tenant: v.tenant, Workspace: t.Workspace, Principal: t.Run.Principal}
	c, rev, err := v.s.cursor(ctx, by)
	if err != nil || rev == 0 || c.Done >= c.Read {
		return err
	}
	return v.s.moveCursor(ctx, by, func(c *cursor) bool {
		if c.Done >= c.Read {
			return false
		}
		c.Done = c.Read
		return true
	})
}
