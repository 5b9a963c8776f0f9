package runtime

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

const (
	// stopGrace is between SIGTERM and SIGKILL for a process whose caller has left.
	stopGrace = time.Second
	// execBuffer is kept of each output until the caller has it: a window of the stream, and as much again
	// while acknowledgements are on their way.
	execBuffer = 2 << 20
	// maxTimeout of a process is far enough off, and keeps milliseconds from overflowing.
	maxTimeout = 366 * 24 * time.Hour
	maxGrace   = 10 * time.Minute
)

// Exec runs a process as the sandbox's payload. Its streams are the channels stdin, stdout and stderr; resize and
// signal come as control messages. Nothing of its output is lost while the caller is there, or comes back by Attach
// after this node's process has restarted: until the caller has it, it is kept, and holds the process back. The process
// ends when its caller leaves, or does not come back in time.
func (d *desk) Exec(ctx context.Context, _ mesh.Caller, req runtime.ExecRequest, s *stream.Session) (runtime.ExecResult, error) {
	defer d.used(req.PTY)()
	d.s.warm.ran()
	defer d.s.warm.ran()
	spec, err := d.process(req)
	if err != nil {
		return runtime.ExecResult{}, err
	}
	spec.Output, spec.Buffer, spec.KillLeftovers = supervisor.OutputLossless, execBuffer, true
	spec.Labels = map[string]string{labelKind: kindExec}
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	p, err := d.start(ctx, spec)
	if err != nil {
		return runtime.ExecResult{}, d.failed(alive, err)
	}
	seat, alive := d.seats.take(alive, ownerSeat(p.ID()))
	defer d.belongs(p, s, seat)
	r := &relay{d: d, p: p, s: s, acks: true, taken: req.ID != "", words: d.words.begin(p.ID(), req.Argv)}
	if err := s.Greet(stream.Started, runtime.Process{ID: p.ID(), Argv: req.Argv, PID: p.PID(), UID: spec.Identity.UID, PTY: req.PTY, Foreground: true, Running: true}); err != nil {
		return runtime.ExecResult{}, err
	}
	exit, err := r.run(alive, req.Stdin || req.PTY)
	if err != nil {
		return runtime.ExecResult{}, d.failed(alive, err)
	}
	out := d.exitOf(*exit)
	r.words.end(out)
	return runtime.ExecResult{Process: p.ID(), Exit: out, CPUMS: (exit.UserCPU + exit.SystemCPU).Milliseconds(), MaxRSS: exit.MaxRSS, Message: exit.Message}, nil
}

// used notes an operation as use of the sandbox. A terminal may stay open for days: on it, what moves counts.
func (d *desk) used(terminal bool) (end func()) {
	if terminal {
		return d.life.active.moment()
	}
	return d.use()
}

// start starts a process. A caller who leaves meanwhile does not break it off: then nobody would know whether
// there is a process to end.
func (d *desk) start(ctx context.Context, spec supervisor.ProcessSpec) (*supervisor.Process, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
	defer cancel()
	ctx, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	p, err := d.box.Supervisor().Start(ctx, spec)
	if err != nil {
		return nil, d.failed(ctx, err)
	}
	return p, nil
}

// process says what is to be run.
func (d *desk) process(req runtime.ExecRequest) (supervisor.ProcessSpec, error) {
	spec := supervisor.ProcessSpec{ID: req.ID, Argv: supervisor.Texts(req.Argv...), Env: supervisor.Texts(d.environ()...), Dir: supervisor.Text(workdir(d.run)),
		Identity: d.box.Payload(), Stdin: req.Stdin, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond, Grace: time.Duration(req.GraceMS) * time.Millisecond}
	switch {
	case len(req.Argv) == 0:
		return spec, fault.New(fault.Invalid, `"argv" names a command`)
	case req.TimeoutMS < 0 || req.TimeoutMS > maxTimeout.Milliseconds():
		return spec, fault.New(fault.Invalid, `"timeout_ms" is 0 to %d`, maxTimeout.Milliseconds())
	case req.GraceMS < 0 || req.GraceMS > maxGrace.Milliseconds():
		return spec, fault.New(fault.Invalid, `"grace_ms" is 0 to %d`, maxGrace.Milliseconds())
	case len(req.Rlimits) > 16:
		return spec, fault.New(fault.Invalid, `"rlimits" has %d entries: at most 16`, len(req.Rlimits))
	}
	if req.ID != "" {
		if err := schemas.CheckID("id of the process", req.ID); err != nil {
			return spec, fault.New(fault.Invalid, "%v", err)
		}
	}
	for name, v := range req.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return spec, fault.New(fault.Invalid, `"env" has the name %.40q: it must not be empty, nor hold "="`, name)
		}
		spec.Env = append(spec.Env, supervisor.Text(name+"="+v)) // the last one of a name counts
	}
	for _, l := range req.Rlimits {
		spec.Rlimits = append(spec.Rlimits, supervisor.Rlimit{Name: l.Name, Soft: l.Soft, Hard: l.Hard})
	}
	if req.Workdir != "" {
		spec.Dir = supervisor.Text(req.Workdir)
	}
	if req.PTY {
		spec.PTY = &supervisor.Size{Rows: req.Rows, Cols: req.Cols}
	}
	return spec, d.asUser(req.User, &spec.Identity)
}

// asUser applies the user that was asked for.
func (d *desk) asUser(u *runtime.User, id *supervisor.Identity) error {
	if u == nil {
		return nil
	}
	for _, n := range append([]uint32{u.UID, u.GID}, u.Groups...) {
		if n >= math.MaxUint16 {
			return fault.New(fault.Invalid, `"user" has the id %d: a sandbox has 0 to %d`, n, math.MaxUint16-1)
		}
	}
	*id = supervisor.Identity{UID: u.UID, GID: u.GID, Groups: u.Groups}
	return id.Check()
}

// exitOf says how a process ended.
func (d *desk) exitOf(x supervisor.Exit) workspace.Exit {
	out := workspace.Exit{Code: x.Code, Signal: x.Signal, Reason: execReason(x.Reason)}
	if x.Code != 0 && out.Reason == reasonSignal && x.Signal == "SIGKILL" && d.box.OutOfMemory() {
		out.Reason = reasonOOM
	}
	return out
}

func execReason(r supervisor.Reason) string {
	switch r {
	case supervisor.ReasonSignaled:
		return reasonSignal
	case supervisor.ReasonTimeout:
		return reasonTimeout
	case supervisor.ReasonKilled:
		return reasonCancelled
	case supervisor.ReasonFailed:
		return reasonStartFailed
	}
	return reasonExited
}
