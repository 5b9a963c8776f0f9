package runtime

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Reasons of an exit.
const (
	reasonExited      = "exited"
	reasonSignal      = "signal"
	reasonTimeout     = "timeout"
	reasonOOM         = "oom"
	reasonCancelled   = "cancelled"
	reasonIdle        = "idle"
	reasonStartFailed = "start-failed"
)

// execute brings the attempt to the end of its command, and begins to journal how it ended. Its error means
// that this process can't go on with it: the attempt is lost, ctx has ended, or the disk fails.
func (a *attempt) execute(ctx context.Context) error {
	exit, err := a.command(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	switch {
	case err == nil:
		a.e.Exit = exit
	case errors.Is(err, errStopped):
		a.e.Exit = &workspace.Exit{Code: -1, Reason: a.stopped()}
	case errors.Is(err, errDisk):
		return err
	case fault.Is(err, fault.Conflict):
		return errors.Join(errLost, err) // another attempt has overtaken this one
	default:
		a.log.Warn("the command could not be run to its end", "error", err)
		a.e.Fault, a.e.Retry = wire(err)
	}
	a.measure()
	for _, st := range spool.All() {
		if err := a.spool.End(st); err != nil {
			return errors.Join(errDisk, err)
		}
	}
	a.exited = a.reach(stepExited)
	return nil
}

// errDisk means that this node's disk fails or is full.
var errDisk = errors.New("the node's disk")

// stopped is the reason of an attempt that was to be ended.
func (a *attempt) stopped() string {
	if a.h.stopReason() == reasonTimeout {
		return reasonTimeout
	}
	return reasonCancelled
}

// measure notes what was used. A sandbox that is gone can't be measured any more.
func (a *attempt) measure() {
	a.e.Usage.StdoutBytes, a.e.Usage.StderrBytes = a.spool.Position(spool.Stdout).Size, a.spool.Position(spool.Stderr).Size
	a.e.Usage.Truncated = a.spool.Truncated()
	if a.box == nil {
		return
	}
	if u, err := a.box.Stats(); err == nil {
		a.e.Usage.CPUMS = max(a.e.Usage.CPUMS, u.CPU.Milliseconds())
	}
}

// command makes the attempt's place, starts the command in it or finds it running, and follows it to its end.
func (a *attempt) command(ctx context.Context) (_ *workspace.Exit, err error) {
	pl, k, err := a.ready(ctx)
	if err != nil {
		return nil, err
	}
	alive, cancel := a.whileAlive(ctx)
	defer cancel()
	alive, span := mesh.Span(alive, "runtime command")
	defer func() { span(err) }()
	p, err := a.start(alive, pl, k)
	if err == nil {
		defer p.Close()
		var exit supervisor.Exit
		if exit, err = a.follow(alive, p); err == nil {
			return a.exit(exit), nil
		}
	}
	if errors.Is(context.Cause(alive), errGone) {
		return a.gone()
	}
	return nil, err
}

// ready gives the attempt a complete place, or takes up again the one that an earlier process made.
func (a *attempt) ready(ctx context.Context) (*place, kept, error) {
	var k kept
	placed := !a.e.Step.before(stepStarting)
	if placed && a.box == nil {
		return nil, k, fault.New(fault.Unavailable, "the sandbox ended while its node was away")
	}
	if !placed && a.resumed {
		// Half made by a process that died. Nothing has run in it: a new one costs less than to know what it has.
		a.destroy(ctx)
		a.box = nil
	}
	pl := a.place(ctx)
	var err error
	if placed {
		k, err = recall(a.box, a.h)
	} else {
		making, cancel := a.untilStopped(ctx)
		a.box, k, err = pl.make(making)
		if errors.Is(context.Cause(making), errStopped) {
			err = errStopped
		}
		cancel()
	}
	a.e.Leases = k.Leases
	if err != nil {
		return nil, k, err
	}
	if a.leased() {
		ref := leaseRef(a.e.Item, a.e.Sandbox)
		a.h.setLeases(&ref)
	}
	a.scrub = a.s.cfg.Scrub(k.Issued.Scrub)
	a.gate, err = a.s.openGate(a.box, a.h, &VaultSession{LeaseRef: leaseRef(a.e.Item, a.e.Sandbox), Principal: a.e.Run.Principal, Issued: k.Issued})
	if err == nil && !placed {
		if jerr := a.to(stepStarting); jerr != nil {
			err = errors.Join(errDisk, jerr)
		}
	}
	return pl, k, err
}

// whileAlive gives a context that also ends, with errGone, when the sandbox does.
func (a *attempt) whileAlive(ctx context.Context) (context.Context, func()) {
	return until(ctx, a.box.Gone(), errGone)
}

// until gives a context that also ends, with cause, when c is closed.
func until(ctx context.Context, c <-chan struct{}, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c:
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// untilStopped gives a context that also ends, with errStopped, when the attempt is to be ended.
func (a *attempt) untilStopped(ctx context.Context) (context.Context, func()) {
	return until(ctx, a.h.stop, errStopped)
}

// place describes what the attempt runs in.
func (a *attempt) place(ctx context.Context) *place {
	run, ref := *a.e.Run, leaseRef(a.e.Item, a.e.Sandbox)
	resources, _ := sandbox.Resolve(run.Resources) // what is wrong with them, Create says
	return &place{
		s: a.s, h: a.h, ref: ref, run: run, input: a.e.Input, traceparent: mesh.Traceparent(ctx),
		spec: sandbox.Spec{
			ID: a.e.Sandbox, Generation: 1, Tenant: ref.Tenant, Workspace: ref.Workspace, Principal: run.Principal, Task: ref.Task, Attempt: ref.Attempt,
			Level: run.Level, Image: run.Image, Isolation: run.Isolation, Resources: resources, Files: run.Files != filesNone,
		},
	}
}

// leased reports whether credentials were asked for.
func (a *attempt) leased() bool { return a.e.Run != nil && len(a.e.Run.Secrets) > 0 }

// start starts the command, once: one that an earlier process has started is followed from where its
// output was taken in.
func (a *attempt) start(ctx context.Context, pl *place, k kept) (*supervisor.Process, error) {
	env, err := pl.environment(ctx, k, a.box)
	if err != nil {
		return nil, err
	}
	at := supervisor.Offsets{Stdout: a.spool.Position(spool.Stdout).Source, Stderr: a.spool.Position(spool.Stderr).Source}
	p, err := a.box.Supervisor().Start(ctx, supervisor.ProcessSpec{
		ID: a.e.Process, Argv: supervisor.Texts(a.e.Run.Argv...), Env: supervisor.Texts(env...), Dir: supervisor.Text(workdir(a.e.Run)),
		Identity: a.box.Payload(), Output: supervisor.OutputLossless, KillLeftovers: true,
		Timeout: time.Duration(a.e.Run.TimeoutMS) * time.Millisecond, Grace: a.s.cfg.timing.grace,
	})
	if fault.Is(err, fault.Conflict) {
		p, err = a.box.Supervisor().Attach(ctx, a.e.Process, at)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.CodeOf(err), "the command can't be started")
	}
	failpoint.Hit(fpAfterStart)
	if a.e.CommandAt == nil {
		now := a.s.cfg.Clock().UTC()
		a.e.CommandAt = &now
		if err := a.to(stepRunning); err != nil {
			return nil, errors.Join(errDisk, err, p.Close())
		}
		a.progress(ctx, workspace.Progress{QueueItem: a.e.Item, CommandAt: &now})
	}
	return p, nil
}

func workdir(run *workspace.RunSpec) string {
	if run.Workdir == "" {
		return sandbox.WorkspacePath
	}
	return run.Workdir
}

// progress reports a milestone, beside the attempt's way. One that is lost comes with the finish.
func (a *attempt) progress(ctx context.Context, p workspace.Progress) {
	a.s.work.Go(func() {
		ask, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
		defer cancel()
		if err := a.s.cfg.Manager.Progress(ask, p); err != nil && ctx.Err() == nil {
			a.log.Debug("a milestone was not reported", "error", err)
		}
	})
}

// follow takes in the command's output until it has ended, and ends it when it is to be ended.
func (a *attempt) follow(ctx context.Context, p *supervisor.Process) (supervisor.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	ending := make(chan struct{})
	go func() {
		defer close(ending)
		select {
		case <-a.h.stop:
			a.end(ctx, p)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-ending }()
	return a.takeIn(ctx, p)
}

var errGone = errors.New("process 1 of the sandbox has ended")

// gone says how an attempt ended whose sandbox died under it.
func (a *attempt) gone() (*workspace.Exit, error) {
	if a.box.OutOfMemory() {
		return &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: reasonOOM}, nil
	}
	if a.box.OutOfPIDs() {
		return &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: workspace.ReasonPIDs}, nil
	}
	return nil, fault.New(fault.Unavailable, "the sandbox ended under the command")
}

// end asks the command's whole tree to end, and then makes it.
func (a *attempt) end(ctx context.Context, p *supervisor.Process) {
	err := p.Stop(ctx, a.s.cfg.timing.grace)
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.Conflict) {
		return
	}
	a.log.Warn("the command does not end; everything in its sandbox is killed", "error", err)
	if err := a.box.Stop(ctx); err != nil {
		a.log.Error("the sandbox can't be killed", "error", err)
	}
}

// exit translates how the command ended.
func (a *attempt) exit(e supervisor.Exit) *workspace.Exit {
	out := &workspace.Exit{Code: e.Code, Signal: e.Signal, Reason: reasonExited}
	switch e.Reason {
	case supervisor.ReasonFailed:
		out.Reason = reasonStartFailed
	case supervisor.ReasonTimeout:
		out.Reason = reasonTimeout
	case supervisor.ReasonKilled:
		out.Reason = a.stopped()
	case supervisor.ReasonSignaled:
		out.Reason = reasonSignal
	}
	if e.Code != 0 && (out.Reason == reasonExited || out.Reason == reasonSignal) && a.box.OutOfMemory() {
		out.Reason = reasonOOM
	}
	a.e.Usage.MaxRSSBytes = e.MaxRSS
	a.e.Usage.CPUMS = (e.UserCPU + e.SystemCPU).Milliseconds()
	return out
}

// takeIn reads the command's output into the spool until the command has ended.
func (a *attempt) takeIn(ctx context.Context, p *supervisor.Process) (supervisor.Exit, error) {
	in := map[supervisor.Stream]*intake{
		supervisor.Stdout: a.intake(spool.Stdout),
		supervisor.Stderr: a.intake(spool.Stderr),
	}
	for {
		ev, err := p.Next(ctx)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fault.New(fault.Internal, "the command's output ended without its exit")
			}
			return supervisor.Exit{}, err
		}
		if ev.Exit != nil {
			if ev.Exit.Message != "" && ev.Exit.Reason == supervisor.ReasonFailed {
				a.say(ev.Exit.Message)
			}
			for _, i := range in {
				if err := i.flush(); err != nil {
					return *ev.Exit, err
				}
			}
			return *ev.Exit, nil
		}
		if err := in[ev.Stream].take(ctx, ev); err != nil {
			return supervisor.Exit{}, err
		}
		failpoint.Hit(fpMidOutput)
		p.Ack(supervisor.Offsets{Stdout: a.spool.Position(spool.Stdout).Source, Stderr: a.spool.Position(spool.Stderr).Source})
	}
}

// say puts a line of the node's own beside the output.
func (a *attempt) say(line string) {
	if err := a.spool.Append(spool.Log, []byte(line+"\n"), 0); err != nil {
		a.log.Error("the node's own line was not spooled", "error", err)
	}
}

// intake is one stream on its way into the spool.
type intake struct {
	a      *attempt
	stream spool.Stream
	scrub  Scrubber
	buffer []byte
	source uint64 // up to where the command's output was read
}

func (a *attempt) intake(st spool.Stream) *intake {
	return &intake{a: a, stream: st, scrub: a.scrub(), source: a.spool.Position(st).Source}
}

// take adds what of an event is new.
func (i *intake) take(ctx context.Context, ev supervisor.Event) error {
	a := i.a
	i.source = ev.Offset + uint64(len(ev.Data))
	before := a.spool.Truncated()
	i.buffer = i.scrub.Append(i.buffer[:0], ev.Data)
	// What is held back is not counted: after a crash it is read again, and held back again.
	if err := a.spool.Append(i.stream, i.buffer, i.source-uint64(i.scrub.Held())); err != nil {
		return errors.Join(errDisk, err)
	}
	if !before && a.spool.Truncated() {
		a.say("output was truncated: it is larger than the attempt may keep")
	}
	if a.e.FirstOutputAt == nil && len(ev.Data) > 0 {
		now := a.s.cfg.Clock().UTC()
		a.e.FirstOutputAt = &now
		a.progress(ctx, workspace.Progress{QueueItem: a.e.Item, FirstOutputAt: &now})
	}
	return nil
}

// flush adds what was held back to the end.
func (i *intake) flush() error {
	i.buffer = i.scrub.Flush(i.buffer[:0])
	if err := i.a.spool.Append(i.stream, i.buffer, i.source); err != nil {
		return errors.Join(errDisk, err)
	}
	return nil
}
