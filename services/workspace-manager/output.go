package manager

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// outputLate is how long after the end of an attempt a follower waits for output that is stored and has
// not reached it yet.
const outputLate = 5 * time.Second

// appearWithin is how long a follower waits for a task that has no record yet.
const appearWithin = 5 * time.Second

// TaskOutput replays the output of an attempt from the offsets asked for and with Follow goes on until
// the attempt has ended. It reads the tenant's output stream; what that no longer has it asks of the
// node's spool; what neither has is told as a gap. The last chunk has End set.
func (s *Service) TaskOutput(ctx context.Context, by mesh.Caller, req workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
	k, err := taskKey(by, req.Task)
	if err != nil {
		return err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return err
	}
	if req.Follow {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.FollowLimit)
		defer cancel()
	}
	if err := s.attemptToRead(ctx, v, k, &req); err != nil || req.Attempt == 0 {
		return errors.Join(err, send(workspace.OutputChunk{End: true}))
	}
	o := &outputReader{s: s, v: v, k: k, req: req, send: send, next: map[string]int64{}}
	for name, off := range req.Offsets {
		o.next[name] = off
	}
	if err := o.stream(ctx); err != nil {
		return err
	}
	if err := o.rest(ctx); err != nil {
		return err
	}
	return send(workspace.OutputChunk{Attempt: req.Attempt, End: true})
}

// attemptToRead sets req.Attempt: as asked for, else the current or last. With Follow it waits for the
// first, and a few seconds for the task itself, which may have been submitted just now.
func (s *Service) attemptToRead(ctx context.Context, v *view, k records.Key, req *workspace.OutputRequest) error {
	appear, cancel := context.WithTimeout(ctx, appearWithin)
	defer cancel()
	for {
		changed := v.next()
		r, err := get(ctx, s.stores.tasks, k)
		if fault.Is(err, fault.NotFound) && req.Follow && appear.Err() == nil {
			select {
			case <-appear.Done():
			case <-changed:
			}
			continue
		}
		if err != nil {
			return err
		}
		t := &r.Value
		switch {
		case req.Attempt < 0 || req.Attempt > t.Attempt.Number:
			return fault.New(fault.NotFound, "task %s has no attempt %d", k.ID, req.Attempt)
		case req.Attempt > 0:
			return nil
		case t.Attempt.Number > 0 || t.State.Final() || !req.Follow:
			req.Attempt = t.Attempt.Number
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func nodeOf(t *workspace.Task, attempt int) string {
	if t.Attempt.Number == attempt {
		return t.Attempt.Node
	}
	for _, a := range t.Previous {
		if a.Number == attempt {
			return a.Node
		}
	}
	return ""
}

// outputReader puts an attempt's output together, each stream in order and without a byte twice.
type outputReader struct {
	s    *Service
	v    *view
	k    records.Key
	req  workspace.OutputRequest
	send func(workspace.OutputChunk) error
	next map[string]int64 // the next offset of each stream
	seen atomic.Uint64    // sequence in the output stream up to which everything was sent
}

// stream replays the output stream, and with Follow goes on until the attempt has ended and nothing more came.
func (o *outputReader) stream(ctx context.Context) error {
	subject, err := schemas.Out(o.k.Tenant, o.k.Workspace, o.k.ID, o.req.Attempt)
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	cons, err := o.s.js.OrderedConsumer(ctx, "OUT-"+o.k.Tenant, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "output can't be read now; try again")
	}
	info := cons.CachedInfo()
	if !o.req.Follow && info != nil && info.NumPending == 0 {
		return nil
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(128))
	if err != nil {
		return err
	}
	read, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(read, it.Stop)
	defer stop()
	defer it.Stop()
	ended := make(chan struct{})
	if o.req.Follow {
		go func() { defer close(ended); o.awaitEnd(read, subject, cancel) }()
		defer func() { cancel(); <-ended }()
	}
	for {
		// With its context: Stop does not reach an iterator that is just being replaced, after an interruption.
		m, err := it.Next(jetstream.NextContext(read))
		if read.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			continue
		}
		name := m.Headers().Get(schemas.HeaderStream)
		off, perr := strconv.ParseInt(m.Headers().Get(schemas.HeaderOffset), 10, 64)
		if name != "" && perr == nil {
			if err := o.chunk(ctx, workspace.OutputChunk{Stream: name, Offset: off, Data: m.Data()}); err != nil {
				return err
			}
		}
		if md, err := m.Metadata(); err == nil {
			o.seen.Store(md.Sequence.Stream)
			if md.NumPending == 0 && !o.req.Follow {
				return nil
			}
		}
	}
}

// awaitEnd calls done when the attempt is no longer the running one and what is stored of its output was
// sent. A node reports the end only after it has published; what it could not, its spool has.
func (o *outputReader) awaitEnd(ctx context.Context, subject string, done func()) {
	defer done()
	for {
		changed := o.v.next()
		t, ok := o.v.tasks.get(o.k)
		if !ok || t.State.Final() || t.Attempt != o.req.Attempt || t.State == workspace.Pending {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, outputLate)
	defer cancel()
	st, err := o.s.js.Stream(ctx, "OUT-"+o.k.Tenant)
	if err != nil {
		return
	}
	last, err := st.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return // there is none
	}
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for o.seen.Load() < last.Sequence {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// chunk passes on what of c is new. Where bytes are missing before it, the node's spool is asked first.
func (o *outputReader) chunk(ctx context.Context, c workspace.OutputChunk) error {
	next := o.next[c.Stream]
	if c.Offset > next && c.Gap == 0 {
		if err := o.fill(ctx); err != nil {
			return err
		}
		if next = o.next[c.Stream]; c.Offset > next {
			c.Gap = c.Offset - next
		}
	}
	if skip := next - c.Offset; skip > 0 {
		if skip >= int64(len(c.Data)) {
			return nil
		}
		c.Data, c.Offset = c.Data[skip:], next
	}
	if len(c.Data) == 0 && c.Gap == 0 {
		return nil
	}
	o.next[c.Stream] = c.Offset + int64(len(c.Data))
	c.Attempt = o.req.Attempt
	return o.send(c)
}

// fill asks the node for what it has from here on. A node that does not answer leaves the gap.
func (o *outputReader) fill(ctx context.Context) error {
	r, err := get(ctx, o.s.stores.tasks, o.k)
	if err != nil {
		return nil // removed in the meantime: nobody has more
	}
	node := nodeOf(&r.Value, o.req.Attempt)
	if node == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req := workspace.OutputRequest{Task: o.k.ID, Attempt: o.req.Attempt, Offsets: o.next}
	var failed error
	err = o.s.calls.Output(ctx, node, req, func(c workspace.OutputChunk) error {
		if c.End {
			return nil
		}
		next := o.next[c.Stream]
		if skip := next - c.Offset; skip > 0 {
			if skip >= int64(len(c.Data)) {
				return nil
			}
			c.Data, c.Offset = c.Data[skip:], next
		} else if skip < 0 {
			c.Gap = -skip
		}
		o.next[c.Stream] = c.Offset + int64(len(c.Data))
		c.Attempt = o.req.Attempt
		failed = o.send(c)
		return failed
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		o.s.log.Debug("no spooled output from the node", "node", node, "task", o.k.ID, "err", err)
	}
	return nil
}

// rest asks the node for what the output stream did not have, where the record says that there was more.
func (o *outputReader) rest(ctx context.Context) error {
	r, err := get(ctx, o.s.stores.tasks, o.k)
	if err != nil {
		return nil // removed in the meantime: that was all there is
	}
	for _, a := range append(r.Value.Previous, r.Value.Attempt) {
		if a.Number != o.req.Attempt || a.Outcome == nil {
			continue
		}
		u := a.Outcome.Usage
		if o.next["stdout"] < u.StdoutBytes || o.next["stderr"] < u.StderrBytes {
			return o.fill(ctx)
		}
	}
	return nil
}
