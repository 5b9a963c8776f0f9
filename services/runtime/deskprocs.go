package runtime

import (
	"context"
	"slices"
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

// Labels of our own on a process: how it was started, and its name.
const (
	labelReserved = "dev.weft/"
	labelKind     = labelReserved + "kind"
	labelName     = labelReserved + "name"

	kindExec       = "exec"
	kindBackground = "background"
)

const (
	stopTimeout  = 55 * time.Second // of process-stop, with a grace of at most maxStopGrace
	maxStopGrace = 40 * time.Second
	defaultGrace = 5 * time.Second
	waitTimeout  = 65 * time.Second // of process-wait, a little longer than it may be asked to wait
)

// processOperations are those on processes.
func (d *desk) processOperations(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		stream.Op(c, runtime.OpExec, d.Exec, stream.SpeaksFirst()),
		stream.Op(c, runtime.OpAttach, d.Attach, stream.SpeaksFirst()),
		mesh.Op(runtime.OpProcessStart, operationTimeout, d.ProcessStart),
		mesh.Op(runtime.OpProcessList, operationTimeout, d.ProcessList),
		mesh.Op(runtime.OpProcessGet, operationTimeout, d.ProcessGet),
		mesh.Op(runtime.OpProcessWait, waitTimeout, d.ProcessWait),
		mesh.Op(runtime.OpProcessSignal, operationTimeout, d.Signal),
		mesh.Op(runtime.OpProcessResize, operationTimeout, d.Resize),
		mesh.Op(runtime.OpProcessStop, stopTimeout, d.ProcessStop),
		mesh.Op(runtime.OpProcessForget, operationTimeout, d.ProcessForget),
		mesh.Op(runtime.OpSignal, operationTimeout, d.Signal),
		mesh.Op(runtime.OpResize, operationTimeout, d.Resize),
	}
}

// ProcessStart starts a process in the background. Asked again with the id of one that was started so, it gives that.
func (d *desk) ProcessStart(ctx context.Context, _ mesh.Caller, req runtime.ProcessStart) (runtime.Process, error) {
	defer d.use()()
	spec, err := d.process(req.ExecRequest)
	if err == nil {
		err = background(req, &spec)
	}
	if err != nil {
		return runtime.Process{}, err
	}
	if req.Name != "" {
		d.naming.Lock()
		defer d.naming.Unlock()
		other, err := d.find(ctx, req.Name)
		if err == nil && other.Exit == nil && other.ID != req.ID {
			return runtime.Process{}, fault.New(fault.Conflict, "process %s is called %s already; stop it, or choose another name", other.ID, req.Name)
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return runtime.Process{}, err
		}
	}
	p, err := d.start(ctx, spec)
	if fault.Is(err, fault.Conflict) && req.ID != "" {
		there, e := d.find(ctx, req.ID)
		if e != nil || there.Labels[labelKind] != kindBackground {
			return runtime.Process{}, err
		}
		return d.describe(there), nil
	}
	if err != nil {
		return runtime.Process{}, err
	}
	defer p.Close()
	return d.describe(p.Info()), nil
}

// background makes the spec that of a process nobody has to stay with.
func background(req runtime.ProcessStart, spec *supervisor.ProcessSpec) error {
	spec.Labels = map[string]string{labelKind: kindBackground}
	if req.Name != "" {
		if err := schemas.CheckName("name of the process", req.Name); err != nil {
			return fault.New(fault.Invalid, "%v", err)
		}
		spec.Labels[labelName] = req.Name
	}
	if len(req.Labels) > runtime.MaxLabels {
		return fault.New(fault.Invalid, "%d labels: at most %d", len(req.Labels), runtime.MaxLabels)
	}
	size := 0
	for k, v := range req.Labels {
		size += len(k) + len(v)
		if k == "" || strings.HasPrefix(k, labelReserved) || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' || r == '=' }) {
			return fault.New(fault.Invalid, "label %.60q: a label's name is printable, without \"=\", and does not start with %s", k, labelReserved)
		}
		spec.Labels[k] = v
	}
	if size > runtime.MaxLabelBytes {
		return fault.New(fault.Invalid, "labels of %d bytes: at most %d", size, runtime.MaxLabelBytes)
	}
	switch req.Output {
	case "", runtime.OutputAttached:
		spec.Output = supervisor.OutputAttached
	case runtime.OutputRing:
		spec.Output = supervisor.OutputRing
	default:
		return fault.New(fault.Invalid, `"output" %.20q is none of %s, %s`, req.Output, runtime.OutputAttached, runtime.OutputRing)
	}
	spec.Buffer = req.Buffer
	return nil
}

// ProcessList gives the processes, in the order of their starts.
func (d *desk) ProcessList(ctx context.Context, _ mesh.Caller, req runtime.ProcessList) (runtime.Processes, error) {
	defer d.use()()
	list, err := d.box.Supervisor().List(ctx)
	out := runtime.Processes{Items: []runtime.Process{}}
	for _, i := range list {
		if req.All || i.Exit == nil {
			out.Items = append(out.Items, d.describe(i))
		}
	}
	return out, err
}

// ProcessGet gives one process.
func (d *desk) ProcessGet(ctx context.Context, _ mesh.Caller, req runtime.ProcessRef) (runtime.Process, error) {
	defer d.use()()
	info, err := d.find(ctx, req.Process)
	if err != nil {
		return runtime.Process{}, err
	}
	return d.describe(info), nil
}

// ProcessWait gives the process when it has ended, or as it is when the time is over.
func (d *desk) ProcessWait(ctx context.Context, by mesh.Caller, req runtime.ProcessWait) (runtime.Process, error) {
	defer d.use()()
	if req.TimeoutMS < 0 || req.TimeoutMS > runtime.MaxWaitMS {
		return runtime.Process{}, fault.New(fault.Invalid, `"timeout_ms" is 0 to %d`, runtime.MaxWaitMS)
	}
	if req.TimeoutMS == 0 {
		req.TimeoutMS = runtime.MaxWaitMS
	}
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	info, err := d.find(alive, req.Process)
	if err != nil || info.Exit != nil {
		return d.describe(info), d.failed(alive, err)
	}
	limit, cancel := context.WithTimeout(alive, time.Duration(req.TimeoutMS)*time.Millisecond)
	defer cancel()
	exit, err := d.box.Supervisor().Process(info.ID).Wait(limit)
	if err != nil && (limit.Err() == nil || alive.Err() != nil) {
		return runtime.Process{}, d.failed(alive, err)
	}
	return d.now(alive, info, exit), nil
}

// now is a process as it is at the end of an operation. It may have been forgotten meanwhile.
func (d *desk) now(ctx context.Context, info supervisor.ProcessInfo, exit supervisor.Exit) runtime.Process {
	if i, err := d.find(ctx, info.ID); err == nil {
		return d.describe(i)
	}
	if exit.Reason != "" {
		info.Exit = &exit
	}
	return d.describe(info)
}

// Signal sends a signal to a process, its group or its tree.
func (d *desk) Signal(ctx context.Context, _ mesh.Caller, req runtime.SignalRequest) (workspace.Empty, error) {
	if _, err := signalNamed(req.Signal); err != nil {
		return workspace.Empty{}, err
	}
	return d.with(ctx, req.Process, func(p *supervisor.Process) error { return sendSignal(ctx, p, req) })
}

// Resize sets the size of a process's terminal.
func (d *desk) Resize(ctx context.Context, _ mesh.Caller, req runtime.ResizeRequest) (workspace.Empty, error) {
	return d.with(ctx, req.Process, func(p *supervisor.Process) error {
		return p.Resize(ctx, supervisor.Size{Rows: req.Rows, Cols: req.Cols})
	})
}

// ProcessStop ends a process and its descendants, and gives it when none is left. One that has ended stays as it is.
func (d *desk) ProcessStop(ctx context.Context, _ mesh.Caller, req runtime.ProcessStop) (runtime.Process, error) {
	defer d.use()()
	grace := defaultGrace
	if req.GraceMS != nil {
		if *req.GraceMS < 0 || *req.GraceMS > maxStopGrace.Milliseconds() {
			return runtime.Process{}, fault.New(fault.Invalid, `"grace_ms" is 0 to %d`, maxStopGrace.Milliseconds())
		}
		grace = time.Duration(*req.GraceMS) * time.Millisecond
	}
	alive, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	info, err := d.find(alive, req.Process)
	if err != nil || info.Exit != nil {
		return d.describe(info), d.failed(alive, err)
	}
	p := d.box.Supervisor().Process(info.ID)
	if err := p.Stop(alive, grace); err != nil {
		return runtime.Process{}, d.failed(alive, err)
	}
	exit, err := p.Wait(alive)
	if err != nil {
		return runtime.Process{}, d.failed(alive, err)
	}
	return d.now(alive, info, exit), nil
}

// ProcessForget removes an ended process and its output. One that is not there is no error.
func (d *desk) ProcessForget(ctx context.Context, _ mesh.Caller, req runtime.ProcessRef) (workspace.Empty, error) {
	defer d.use()()
	info, err := d.find(ctx, req.Process)
	switch {
	case fault.Is(err, fault.NotFound):
		return workspace.Empty{}, nil
	case err != nil:
		return workspace.Empty{}, err
	case info.Labels[labelKind] == kindExec:
		return workspace.Empty{}, fault.New(fault.Conflict, "process %s was started by exec; it goes when its caller has its output", info.ID)
	}
	return workspace.Empty{}, d.box.Supervisor().Process(info.ID).Forget(ctx)
}

// with does something to a process that runs.
func (d *desk) with(ctx context.Context, ref string, do func(*supervisor.Process) error) (workspace.Empty, error) {
	defer d.use()()
	id := ref
	if schemas.CheckID("process", ref) != nil {
		info, err := d.find(ctx, ref)
		if err != nil {
			return workspace.Empty{}, err
		}
		id = info.ID
	}
	err := do(d.box.Supervisor().Process(id))
	if fault.Is(err, fault.Conflict) {
		err = fault.New(fault.NotFound, "process %s does not run any more", id)
	}
	return workspace.Empty{}, err
}

// find finds a process by its id or name: of several of one name that which runs, else the newest.
func (d *desk) find(ctx context.Context, ref string) (supervisor.ProcessInfo, error) {
	if schemas.CheckName("process", ref) != nil {
		return supervisor.ProcessInfo{}, fault.New(fault.Invalid, "a process is named by its id or its name, not %.40q", ref)
	}
	list, err := d.box.Supervisor().List(ctx)
	if err != nil {
		return supervisor.ProcessInfo{}, err
	}
	var named *supervisor.ProcessInfo
	for _, i := range slices.Backward(list) {
		if i.ID == ref {
			return i, nil
		}
		if i.Labels[labelName] == ref && (named == nil || i.Exit == nil && named.Exit != nil) {
			named = &i
		}
	}
	if named == nil {
		return supervisor.ProcessInfo{}, fault.New(fault.NotFound, "no process %s in this sandbox: it never ran, or was forgotten", ref)
	}
	return *named, nil
}

// describe tells of a process as the mesh does.
func (d *desk) describe(i supervisor.ProcessInfo) runtime.Process {
	out := runtime.Process{ID: i.ID, Name: i.Labels[labelName], Argv: make([]string, len(i.Argv)), PID: i.PID, UID: i.UID, PTY: i.PTY,
		Foreground: i.Labels[labelKind] == kindExec, Output: string(i.Output), Running: i.Exit == nil, StartedAt: i.Start.UTC(),
		Oldest: offsets(i.Oldest), Written: offsets(i.End)}
	for n, a := range i.Argv {
		out.Argv[n] = string(a)
	}
	for k, v := range i.Labels {
		if strings.HasPrefix(k, labelReserved) {
			continue
		}
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[k] = v
	}
	if x := i.Exit; x != nil {
		exit, end := d.exitOf(*x), x.End.UTC()
		out.Exit, out.EndedAt = &exit, &end
		out.CPUMS, out.MaxRSS, out.Message = (x.UserCPU + x.SystemCPU).Milliseconds(), x.MaxRSS, x.Message
		out.Written = runtime.Offsets{Stdout: int64(x.Stdout), Stderr: int64(x.Stderr)}
	}
	return out
}

func offsets(o supervisor.Offsets) runtime.Offsets {
	return runtime.Offsets{Stdout: int64(o.Stdout), Stderr: int64(o.Stderr)}
}
