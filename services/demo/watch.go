package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// labelFolder is the label by which the planner says which folder an analyst has.
const labelFolder = "folder"

// watch follows the log of the workspace and the output of everything that runs in it, shows both, and
// remembers them. It goes on across the daemon's end. Its methods are safe for concurrent use.
type watch struct {
	c    *client.Client
	v    *view
	work sync.WaitGroup

	mu      sync.Mutex
	next    uint64 // sequence in the log
	tasks   map[string]*followed
	order   []string                    // of the tasks
	gathers map[string]workspace.Gather // by group
	changed chan struct{}               // closed and replaced at every change
	broken  error                       // why it can't go on
}

// followed is what is known of a task.
type followed struct {
	workspace.Task
	label, colour string
	attempt       int // whose output is followed
	reading       bool
	out           map[string]*transcript // by stream, of that attempt
	attacks       []Attack
}

func newWatch(c *client.Client, v *view) *watch {
	return &watch{c: c, v: v, tasks: map[string]*followed{}, gathers: map[string]workspace.Gather{}, changed: make(chan struct{})}
}

// run follows until ctx ends, and waits for all that it started.
func (w *watch) run(ctx context.Context) {
	defer w.work.Wait()
	whileUp(ctx, w.c, func(up context.Context) bool {
		w.mu.Lock()
		r := workspace.EventsRequest{FromSequence: w.next, Follow: true,
			Entities: []string{workspace.EntityTask, workspace.EntityGather, "lease"}}
		w.mu.Unlock()
		err := w.c.Events(up, r, func(e client.Event) error { return w.event(ctx, e) })
		return w.failed(ctx, up, err)
	})
}

// failed reports whether there is nothing more to follow, and remembers why.
func (w *watch) failed(ctx, up context.Context, err error) bool {
	passing := err == nil || up.Err() != nil || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Deadline)
	if ctx.Err() != nil || passing {
		return ctx.Err() != nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = errors.Join(w.broken, err)
	w.tell()
	return true
}

// tell wakes whoever waits. The caller holds the lock.
func (w *watch) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watch) event(ctx context.Context, e client.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.tell()
	w.next = e.Sequence + 1
	switch e.Entity {
	case workspace.EntityTask:
		return w.task(ctx, e)
	case workspace.EntityGather:
		return w.gather(e)
	}
	return w.lease(e)
}

func (w *watch) task(ctx context.Context, e client.Event) error {
	t, ok := w.tasks[e.ID]
	if !ok {
		t = &followed{colour: palette[len(w.order)%len(palette)], out: map[string]*transcript{}}
		w.tasks[e.ID] = t
		w.order = append(w.order, e.ID)
	}
	if err := json.Unmarshal(e.Value, &t.Task); err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	t.label = label(&t.Task)
	if e.Event != "progress" {
		w.v.event(t.colour, t.label, e.Event, taskDetail(&t.Task))
	}
	if n := t.Attempt.Number; t.Attempt.StartedAt != nil && n > t.attempt {
		t.attempt, t.reading, t.out = n, true, map[string]*transcript{}
		w.work.Go(func() { w.read(ctx, t, e.ID, n) })
	}
	return nil
}

// label is what a task is called: its agent, and the folder that it has.
func label(t *workspace.Task) string {
	return strings.TrimSpace(t.Submission.Agent + " " + t.Submission.Labels[labelFolder])
}

// taskDetail is what one looks for in a task's event.
func taskDetail(t *workspace.Task) string {
	s := "task " + t.ID
	o := t.Attempt.Outcome
	switch {
	case t.State == workspace.Running:
		s += fmt.Sprintf(" attempt %d on %s", t.Attempt.Number, t.Attempt.Node)
	case t.State == workspace.Complete && o != nil:
		s += fmt.Sprintf(" %s, %s", plural(o.FilesChanged, "file changed", "files changed"), plural(o.Leases, "lease", "leases"))
		if len(o.Conflicts) > 0 {
			s += fmt.Sprintf(", %s", plural(len(o.Conflicts), "conflict", "conflicts"))
		}
	case o != nil && o.Exit != nil && t.State.Final():
		s += fmt.Sprintf(" exit %d, %s", o.Exit.Code, o.Exit.Reason)
	}
	f := t.Fault
	if f == nil {
		f = t.Attempt.Fault
	}
	if f != nil && t.State != workspace.Queued && t.State != workspace.Running {
		s += " " + f.Code + ": " + f.Message
	}
	return s
}

func (w *watch) gather(e client.Event) error {
	var g workspace.Gather
	if err := json.Unmarshal(e.Value, &g); err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	w.gathers[g.Group.ID] = g
	if e.Event == "fired" {
		w.v.event(grey, "trigger "+g.Trigger, "fired", "it starts task "+g.Task)
	} else {
		w.v.event(grey, "trigger "+g.Trigger, e.Event, fmt.Sprintf("%d of %d have reported", len(g.Members), g.Group.Size))
	}
	return nil
}

func (w *watch) lease(e client.Event) error {
	var l secrets.Lease
	if err := json.Unmarshal(e.Value, &l); err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	t := w.tasks[l.Task]
	if t == nil || e.Event != "issued" && e.Event != "revoked" {
		return nil
	}
	detail := strings.Join(l.Secrets, ", ")
	if e.Event == "issued" {
		detail += fmt.Sprintf(", for %d s unless it is renewed", l.TTLMS/1000)
	}
	w.v.event(t.colour, t.label, "lease "+e.Event, detail)
	return nil
}

// read follows the output of an attempt to its end.
func (w *watch) read(ctx context.Context, t *followed, id string, attempt int) {
	whileUp(ctx, w.c, func(up context.Context) bool {
		w.mu.Lock()
		offsets := map[string]int64{}
		for s, tr := range t.out {
			offsets[s] = tr.next
		}
		w.mu.Unlock()
		r := workspace.OutputRequest{Task: id, Attempt: attempt, Offsets: offsets, Follow: true}
		err := w.c.Output(up, r, func(c workspace.OutputChunk) error { w.chunk(t, c); return nil })
		return err == nil && up.Err() == nil || w.failed(ctx, up, err)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	t.reading = t.attempt != attempt && t.reading
	w.tell()
}

func (w *watch) chunk(t *followed, c workspace.OutputChunk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.tell()
	if c.Attempt != t.attempt {
		return
	}
	tr := t.out[c.Stream]
	if tr == nil {
		tr = &transcript{}
		t.out[c.Stream] = tr
	}
	for _, line := range tr.take(c) {
		if a, ok := parseAttack(line); ok && c.Stream == stdout {
			t.attacks = append(t.attacks, a)
			line = a.line()
		}
		w.v.output(t.colour, t.label, c.Stream, line)
	}
}

// until waits until cond holds. cond is called under the lock at every change; its error ends the wait.
func (w *watch) until(ctx context.Context, what string, cond func() (bool, error)) error {
	began := time.Now()
	for {
		w.mu.Lock()
		ok, err := cond()
		changed := w.changed
		if err == nil && !ok {
			err = w.broken
		}
		w.mu.Unlock()
		if err != nil || ok {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fault.New(fault.Deadline, "%s: waited %.0f s for it in vain", what, time.Since(began).Seconds())
			}
			return ctx.Err()
		}
	}
}

// children gives the tasks that a task submitted, in order. The caller holds the lock.
func (w *watch) children(parent string) []*followed {
	var out []*followed
	for _, id := range w.order {
		if t := w.tasks[id]; t.Submission.Parent == parent {
			out = append(out, t)
		}
	}
	return out
}

// unlucky gives an error if one of the tasks has ended otherwise than well.
func unlucky(ts ...*followed) error {
	for _, t := range ts {
		if t != nil && t.State.Final() && t.State != workspace.Complete {
			return fault.New(fault.Internal, "%s ended as %s (%s)", t.label, t.State, taskDetail(&t.Task))
		}
	}
	return nil
}

// ended reports whether all of the tasks have ended and their output was read. The caller holds the lock.
func ended(ts ...*followed) bool {
	return !slices.ContainsFunc(ts, func(t *followed) bool { return t == nil || !t.State.Final() || t.reading })
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
