package client

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// askSandbox is one request to the node that holds a sandbox.
func askSandbox[Rep any](ctx context.Context, c *Client, sandbox, op string, req any) (Rep, error) {
	subject, err := c.sbx(sandbox, op)
	if err != nil {
		var none Rep
		return none, err
	}
	rep, err := mesh.Request[Rep](ctx, c.conn, subject, req)
	if fault.Is(err, fault.Unavailable) {
		err = c.whyAway(ctx, sandbox, err)
	}
	return rep, err
}

// StartProcess starts a process in the background and gives it at once. Wherever a process is named, its id or
// its name will do.
func (c *Client) StartProcess(ctx context.Context, sandbox string, r runtime.ProcessStart) (runtime.Process, error) {
	if r.ID == "" {
		r.ID = schemas.NewID() // should no answer come, it can be asked for again
	}
	return askSandbox[runtime.Process](ctx, c, sandbox, runtime.OpProcessStart, r)
}

// Processes lists the processes of a sandbox that run; with all also those that have ended and were not forgotten.
func (c *Client) Processes(ctx context.Context, sandbox string, all bool) ([]runtime.Process, error) {
	l, err := askSandbox[runtime.Processes](ctx, c, sandbox, runtime.OpProcessList, runtime.ProcessList{All: all})
	return l.Items, err
}

// Process gives one process.
func (c *Client) Process(ctx context.Context, sandbox, process string) (runtime.Process, error) {
	return askSandbox[runtime.Process](ctx, c, sandbox, runtime.OpProcessGet, runtime.ProcessRef{Process: process})
}

// pollEvery is one round of a wait.
const pollEvery = 20 * time.Second

// WaitProcess waits for a process's end, also while the node's process restarts.
func (c *Client) WaitProcess(ctx context.Context, sandbox, process string) (runtime.Process, error) {
	again := retry{c: c, sandbox: sandbox}
	for {
		round, cancel := context.WithTimeout(ctx, pollEvery+5*time.Second)
		p, err := askSandbox[runtime.Process](round, c, sandbox, runtime.OpProcessWait, runtime.ProcessWait{Process: process, TimeoutMS: pollEvery.Milliseconds()})
		cancel()
		switch {
		case err == nil && !p.Running:
			return p, nil
		case err == nil:
			again.reset()
		case !again.after(ctx, err):
			return p, err
		}
	}
}

// SignalProcess is Signal with a target, and with signals by number, too.
func (c *Client) SignalProcess(ctx context.Context, sandbox string, r runtime.SignalRequest) error {
	_, err := askSandbox[workspace.Empty](ctx, c, sandbox, runtime.OpProcessSignal, r)
	return err
}

// ResizeProcess sets the size of a process's terminal.
func (c *Client) ResizeProcess(ctx context.Context, sandbox, process string, rows, cols uint16) error {
	_, err := askSandbox[workspace.Empty](ctx, c, sandbox, runtime.OpProcessResize, runtime.ResizeRequest{Process: process, Rows: rows, Cols: cols})
	return err
}

// StopProcess ends a process and all that descend from it: SIGTERM, and SIGKILL after grace (at once if 0). It
// returns when none is left.
func (c *Client) StopProcess(ctx context.Context, sandbox, process string, grace time.Duration) (runtime.Process, error) {
	ms := grace.Milliseconds()
	ctx, cancel := context.WithTimeout(ctx, grace+15*time.Second)
	defer cancel()
	return askSandbox[runtime.Process](ctx, c, sandbox, runtime.OpProcessStop, runtime.ProcessStop{Process: process, GraceMS: &ms})
}

// ForgetProcess removes an ended process and its output.
func (c *Client) ForgetProcess(ctx context.Context, sandbox, process string) error {
	_, err := askSandbox[workspace.Empty](ctx, c, sandbox, runtime.OpProcessForget, runtime.ProcessRef{Process: process})
	return err
}

// Bounds of the attempts to reach a node again.
const (
	awayFor   = 5 * time.Minute // since it was reached last
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// retry decides about trying again while a node is away.
type retry struct {
	c       *Client
	sandbox string
	since   time.Time
	wait    time.Duration
}

func (r *retry) reset() { r.since = time.Time{} }

// after waits and reports whether it makes sense to try again: the node, or the mesh, may be back, and the
// sandbox has not ended.
func (r *retry) after(ctx context.Context, err error) bool {
	if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Deadline) || ctx.Err() != nil || r.c.conn.NATS().IsClosed() {
		return false
	}
	if r.since.IsZero() {
		r.since, r.wait = time.Now(), firstWait
	}
	if time.Since(r.since) > awayFor {
		return false
	}
	t := time.NewTimer(r.wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	}
	r.wait = min(2*r.wait, lastWait)
	look, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, e := r.c.Sandbox(look, r.sandbox)
	switch {
	case fault.Is(e, fault.NotFound):
		return false
	case e != nil: // the manager is away, too
		return true
	}
	return s.State != workspace.SandboxStopped
}
