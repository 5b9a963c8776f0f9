package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Timing of those who follow a task.
const (
	lookEvery   = 3 * time.Second  // at its record, should an event have been missed
	outputAfter = 10 * time.Second // how long the rest of the output may take once a task has ended
)

// Wait waits until a task has ended and gives it.
func (c *Client) Wait(ctx context.Context, id string) (workspace.Task, error) {
	return c.Follow(ctx, id, Following{})
}

// Following says what Follow tells of. Nil functions are not called; none is called concurrently with
// another. An error of one ends Follow.
type Following struct {
	State  func(workspace.Task) error        // when its state or attempt changed
	Output func(workspace.OutputChunk) error // of every attempt in turn
}

// Follow tells of a task's changes and output until it has ended, and gives it. A task that was just
// submitted may not be there yet; Follow waits for it, until ctx ends.
func (c *Client) Follow(ctx context.Context, id string, f Following) (workspace.Task, error) {
	changed := make(chan struct{}, 1)
	subject, err := schemas.Evt(c.tenant, c.workspace, workspace.EntityTask, id)
	if err != nil {
		return workspace.Task{}, fault.New(fault.Invalid, "%v", err)
	}
	sub, err := c.conn.NATS().Subscribe(subject, func(*nats.Msg) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return workspace.Task{}, fault.Wrap(err, fault.Unavailable, "the connection to the mesh is closed")
	}
	defer func() { _ = sub.Unsubscribe() }()
	o := &outputs{c: c, task: id, each: f.Output}
	defer o.stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var last workspace.Task
	for {
		t, err := c.Task(ctx, id)
		switch {
		case err == nil:
			if err := o.told(ctx, last, t, f); err != nil {
				return t, err
			}
			if last = t; t.State.Final() {
				return t, o.rest(ctx)
			}
		case !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unavailable):
			return last, err
		}
		if err := o.await(ctx, changed, look.C); err != nil {
			return last, err
		}
	}
}

// outputs reads the output of a task's attempts, one after the other.
type outputs struct {
	c       *Client
	task    string
	each    func(workspace.OutputChunk) error
	attempt int
	chunks  chan workspace.OutputChunk
	done    chan error
	cancel  context.CancelFunc
}

// told tells of the task where it differs from last, and begins to read the output of a new attempt.
func (o *outputs) told(ctx context.Context, last, t workspace.Task, f Following) error {
	if n := t.Attempt.Number; o.each != nil && n > o.attempt && t.Attempt.StartedAt != nil {
		if err := o.rest(ctx); err != nil {
			return err
		}
		o.begin(ctx, n)
	}
	if f.State != nil && (last.State != t.State || last.Attempt.Number != t.Attempt.Number || last.Cancel != t.Cancel) {
		return f.State(t)
	}
	return nil
}

func (o *outputs) begin(ctx context.Context, attempt int) {
	o.stop()
	ctx, cancel := context.WithCancel(ctx)
	o.attempt, o.cancel = attempt, cancel
	o.chunks, o.done = make(chan workspace.OutputChunk), make(chan error, 1)
	go func() {
		o.done <- o.c.Output(ctx, workspace.OutputRequest{Task: o.task, Attempt: attempt, Follow: true}, func(ch workspace.OutputChunk) error {
			select {
			case o.chunks <- ch:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
}

// await waits for something to look at, handing on output meanwhile.
func (o *outputs) await(ctx context.Context, changed <-chan struct{}, look <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return followEnded(ctx)
		case <-changed:
			return nil
		case <-look:
			return nil
		case ch := <-o.chunks:
			if err := o.each(ch); err != nil {
				return err
			}
		}
	}
}

// rest hands on what is left of the attempt's output. What does not come within outputAfter is given
// up: the task's end is worth more than its last line.
func (o *outputs) rest(ctx context.Context) error {
	if o.chunks == nil {
		return nil
	}
	defer o.stop()
	limit := time.NewTimer(outputAfter)
	defer limit.Stop()
	for {
		select {
		case ch := <-o.chunks:
			if err := o.each(ch); err != nil {
				return err
			}
		case err := <-o.done:
			o.done <- err // for stop
			if err != nil && ctx.Err() == nil {
				return fault.Wrap(err, fault.CodeOf(err), "the output could not be read to its end: %s", sentence(err))
			}
			return nil
		case <-limit.C:
			return fault.New(fault.Deadline, "the output did not end within %s of the task; `weft task logs %s` reads it again", outputAfter, o.task)
		case <-ctx.Done():
			return followEnded(ctx)
		}
	}
}

// stop ends the reader and waits for it.
func (o *outputs) stop() {
	if o.chunks == nil {
		return
	}
	o.cancel()
	<-o.done
	o.chunks, o.done = nil, nil
}

func followEnded(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Wrap(ctx.Err(), fault.Deadline, "the task did not end in time; it goes on")
	}
	return ctx.Err()
}

func sentence(err error) string {
	_, s := fault.Public(err)
	return s
}
