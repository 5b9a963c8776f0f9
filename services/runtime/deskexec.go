package runtime

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// processOperations are those on processes.
func (d *desk) processOperations(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		stream.Op(c, runtime.OpExec, d.Exec),
		mesh.Op(runtime.OpSignal, operationTimeout, d.Signal),
		mesh.Op(runtime.OpResize, operationTimeout, d.Resize),
	}
}

// Exec runs a process as the sandbox's payload. Its streams are the channels stdin, stdout and stderr; resize and
// signal come as control messages. The process ends when its caller is gone.
func (d *desk) Exec(ctx context.Context, _ mesh.Caller, req runtime.ExecRequest, s *stream.Session) (runtime.ExecResult, error) {
	defer d.use()()
	spec, err := d.process(req)
	if err != nil {
		return runtime.ExecResult{}, err
	}
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	p, err := d.start(ctx, spec)
	if err != nil {
		return runtime.ExecResult{}, d.failed(alive, err)
	}
	d.enter(p)
	defer d.leave(p)
	if err := s.Send(stream.Started, runtime.Process{ID: p.ID(), Argv: req.Argv, PID: p.PID(), Running: true}); err != nil {
		return runtime.ExecResult{}, err
	}
	x := &execution{p: p, s: s, words: d.words.begin(p.ID(), req.Argv)}
	x.begin(alive, req.Stdin || req.PTY)
	exit, err := x.output(alive)
	x.end()
	if err != nil {
		return runtime.ExecResult{}, d.failed(alive, err)
	}
	out := &workspace.Exit{Code: exit.Code, Signal: exit.Signal, Reason: execReason(exit.Reason)}
	if exit.Code != 0 && out.Reason == reasonSignal && exit.Signal == "SIGKILL" && d.box.OutOfMemory() {
		out.Reason = reasonOOM
	}
	x.words.end(*out)
	return runtime.ExecResult{Process: p.ID(), Exit: *out, CPUMS: (exit.UserCPU + exit.SystemCPU).Milliseconds(), MaxRSS: exit.MaxRSS, Message: exit.Message}, nil
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

func (d *desk) enter(p *supervisor.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.procs[p.ID()] = p
}

// leave ends a process whose caller is gone, and lets the supervisor forget it.
func (d *desk) leave(p *supervisor.Process) {
	d.mu.Lock()
	delete(d.procs, p.ID())
	d.mu.Unlock()
	d.s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
		defer cancel()
		ctx, stop := until(ctx, d.box.Gone(), errGone)
		defer stop()
		if err := p.Forget(ctx); fault.Is(err, fault.Conflict) { // it still runs
			_ = p.Stop(ctx, time.Second)
			_ = p.Forget(ctx)
		}
		_ = p.Close()
	})
}

// process says what is to be run.
func (d *desk) process(req runtime.ExecRequest) (supervisor.ProcessSpec, error) {
	spec := supervisor.ProcessSpec{Argv: supervisor.Texts(req.Argv...), Env: supervisor.Texts(d.environ()...), Dir: supervisor.Text(workdir(d.run)),
		Identity: sandbox.Payload(), Stdin: req.Stdin, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond, KillLeftovers: true}
	if len(req.Argv) == 0 || req.TimeoutMS < 0 {
		return spec, fault.New(fault.Invalid, `"argv" names a command, and "timeout_ms" is not negative`)
	}
	for name, v := range req.Env {
		spec.Env = append(spec.Env, supervisor.Text(name+"="+v)) // the last one of a name counts
	}
	if req.Workdir != "" {
		spec.Dir = supervisor.Text(req.Workdir)
	}
	if req.PTY {
		spec.PTY = &supervisor.Size{Rows: req.Rows, Cols: req.Cols}
	}
	return spec, nil
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

// execution carries a process's streams over a session.
type execution struct {
	p       *supervisor.Process
	s       *stream.Session
	words   *tail
	cancel  context.CancelFunc
	helpers sync.WaitGroup
}

// begin carries what the caller sends.
func (x *execution) begin(ctx context.Context, stdin bool) {
	ctx, x.cancel = context.WithCancel(ctx)
	x.helpers.Go(func() { x.control(ctx) })
	if stdin {
		x.helpers.Go(func() { x.input(ctx) })
	}
}

func (x *execution) end() {
	x.cancel()
	_ = x.s.Channel(stream.Stdin).CloseRead() // wakes the reader of it
	x.helpers.Wait()
}

func (x *execution) input(ctx context.Context) {
	in := x.s.Channel(stream.Stdin)
	b := make([]byte, 32<<10)
	for {
		n, err := in.Read(b)
		if n > 0 {
			if werr := x.p.WriteStdin(ctx, b[:n]); werr != nil {
				return // the process has ended, or closed it
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && ctx.Err() == nil {
				_ = x.p.CloseStdin(ctx)
			}
			return
		}
	}
}

func (x *execution) control(ctx context.Context) {
	for {
		m, err := x.s.Receive(ctx)
		if err != nil {
			return
		}
		switch m.Type {
		case stream.Resize:
			if r, err := mesh.Decode[runtime.ResizeRequest](m.Value); err == nil {
				_ = x.p.Resize(ctx, supervisor.Size{Rows: r.Rows, Cols: r.Cols})
			}
		case stream.Signal:
			if r, err := mesh.Decode[runtime.SignalRequest](m.Value); err == nil {
				if sig, err := signalNamed(r.Signal); err == nil {
					_ = x.p.Signal(ctx, sig, supervisor.TargetGroup)
				}
			}
		}
	}
}

// output carries what the process writes, until it has ended.
func (x *execution) output(ctx context.Context) (supervisor.Exit, error) {
	out := map[supervisor.Stream]io.Writer{supervisor.Stdout: x.s.Channel(stream.Stdout), supervisor.Stderr: x.s.Channel(stream.Stderr)}
	for {
		ev, err := x.p.Next(ctx)
		if err != nil {
			return supervisor.Exit{}, err
		}
		if ev.Exit != nil {
			return *ev.Exit, nil
		}
		x.words.add(ev.Stream, ev.Data)
		if _, err := out[ev.Stream].Write(ev.Data); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return supervisor.Exit{}, err
		}
	}
}

// signalNamed knows SIGTERM, TERM and the others by name.
func signalNamed(name string) (syscall.Signal, error) {
	if len(name) < 3 || name[:3] != "SIG" {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fault.New(fault.Invalid, "there is no signal %.20q", name)
}

// Signal sends a signal to the whole group of a process that was started here.
func (d *desk) Signal(ctx context.Context, _ mesh.Caller, req runtime.SignalRequest) (workspace.Empty, error) {
	sig, err := signalNamed(req.Signal)
	if err != nil {
		return workspace.Empty{}, err
	}
	return d.with(ctx, req.Process, func(p *supervisor.Process) error { return p.Signal(ctx, sig, supervisor.TargetGroup) })
}

// Resize sets the size of a process's terminal.
func (d *desk) Resize(ctx context.Context, _ mesh.Caller, req runtime.ResizeRequest) (workspace.Empty, error) {
	return d.with(ctx, req.Process, func(p *supervisor.Process) error {
		return p.Resize(ctx, supervisor.Size{Rows: req.Rows, Cols: req.Cols})
	})
}

// with finds a process that was started here and still runs.
func (d *desk) with(_ context.Context, id string, do func(*supervisor.Process) error) (workspace.Empty, error) {
	defer d.use()()
	d.mu.Lock()
	p := d.procs[id]
	d.mu.Unlock()
	if p == nil {
		return workspace.Empty{}, fault.New(fault.NotFound, "no process %.40q was started here, or it has ended", id)
	}
	return workspace.Empty{}, do(p)
}
