package client

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// lookEvery is how often who follows a task looks at its record, should an event have been missed. A variable for a test.
var lookEvery = 3 * time.Second

// Timing of those who follow a task.
const (
	lookSoon    = time.Millisecond // at its record, should an event have come before it; then less and less often
	takenUpIn   = 15 * time.Second // how long a submission may take to appear as a task
	outputAfter = 45 * time.Second // how long the rest of the output may take once a task has ended: longer than quiet, should a question have been lost
)

// Wait waits until a task has ended and gives it.
func (c *Client) Wait(ctx context.Context, id string) (workspace.Task, error) {
	return c.Follow(ctx, id, Following{})
}

// Run submits a piece of work, follows it and gives the task as it ended.
func (c *Client) Run(ctx context.Context, s workspace.Submission, key string, f Following) (workspace.Task, error) {
	sub, err := c.Submit(ctx, s, key)
	if err != nil {
		return workspace.Task{}, err
	}
	f.Submitted = true
	return c.Follow(ctx, sub.Task, f)
}

// Following says what Follow tells of. Nil functions are not called; none is called concurrently with
// another. An error of one ends Follow.
type Following struct {
	// Submitted says that the task was submitted a moment ago: that it is not there yet is no error, for
	// 15 seconds. After that nobody takes submissions up; this one is safe all the same.
	Submitted bool
	State     func(workspace.Task) error        // when its state or attempt changed
	Output    func(workspace.OutputChunk) error // of every attempt in turn
}

// Follow tells of a task's changes and output until it has ended, and gives it. It goes on across
// disconnects and while a service is away, up to two minutes. If a task that has ended comes with an
// error, the last of its output could not be read.
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
	var last workspace.Task
	var away absence
	begun, soon := time.Now(), lookEvery
	for {
		t, err := o.look(ctx)
		pause := lookEvery
		switch {
		case err == nil:
			away.end()
			// Those who listen hear of a change while it is being written, so it may not be there yet.
			if soon < lookEvery && reflect.DeepEqual(t, last) {
				pause, soon = soon, soon+soon/2
			} else {
				soon = lookEvery
			}
			if err := o.told(ctx, last, t, f); err != nil {
				return t, err
			}
			if last = t; t.State.Final() {
				return t, o.rest(ctx)
			}
		case ctx.Err() != nil:
			return last, followEnded(ctx)
		case fault.Is(err, fault.NotFound) && f.Submitted && last.ID == "":
			if pause = again; time.Since(begun) > takenUpIn {
				return last, fault.New(fault.Unavailable, "task %s is accepted, but nobody takes it up; is the workspace-manager running? It will be done when it is", id)
			}
		case away.over(err):
			return last, err
		default:
			pause = again
		}
		heard, err := o.await(ctx, changed, pause)
		if err != nil {
			return last, err
		}
		if heard {
			soon = lookSoon
		}
	}
}

// look reads the task, in a time that lets a service that is away be asked again.
func (o *outputs) look(ctx context.Context) (workspace.Task, error) {
	if !o.c.conn.NATS().IsConnected() {
		return workspace.Task{}, errAway
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	return o.c.Task(ctx, o.task)
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

// await waits for something to look at, at most for pause, handing on output meanwhile. It reports whether an event came.
func (o *outputs) await(ctx context.Context, changed <-chan struct{}, pause time.Duration) (heard bool, err error) {
	look := time.NewTimer(pause)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, followEnded(ctx)
		case <-changed:
			return true, nil
		case <-look.C:
			return false, nil
		case ch := <-o.chunks:
			if err := o.each(ch); err != nil {
				return false, err
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
