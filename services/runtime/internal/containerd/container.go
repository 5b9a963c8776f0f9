package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// Container is what the Engine is asked to make.
type Container struct {
	ID     string
	Image  Image
	Spec   *specs.Spec
	Labels map[string]string
	// Runtime that runs it, a name as HasRuntime takes; empty: Runc.
	Runtime string
	// Owners in the image are mapped to this host id and the Size-1 that follow.
	HostID, Size uint32
	// OwnRoot says that no snapshot is to be made for the root file system that Spec names; see Engine.Layers.
	OwnRoot bool
	// Shim that the container is to run under, by Spec's annotation too; nil: as containerd finds it.
	Shim *Shim
	// Before is called when the record is made and before anything runs: what Spec refers to must be there then. That is the root
	// file system, too, for which it is given the snapshot; containerd would have every shim start a process for the owners' map.
	Before func(Snapshotted) error
	// Log takes what process 1 writes to its standard outputs; empty: nothing does.
	Log string
}

// Create makes the snapshot and the record of c and starts process 1. What an error leaves behind is
// removed by Delete.
//
// It calls containerd's services without the client library's NewContainer and NewTask, which ask six times more: for a lease that
// labelRoot makes needless, and for what they have just written.
func (e *Engine) Create(ctx context.Context, c Container) (proc.Process, error) {
	e.creating.RLock()
	defer e.creating.RUnlock()
	shared := c.Shim.joins(c.Runtime)
	root, err := e.makeSnapshot(ctx, c)
	if err == nil {
		err = e.record(ctx, c, shared)
	}
	if err != nil {
		return proc.Process{}, diskFull(err)
	}
	if err := c.Before(root); err != nil {
		return proc.Process{}, err
	}
	ctx, cancel := call(ctx, taskTimeout)
	defer cancel()
	log, err := output(c.Runtime, c.Log)
	if err != nil {
		return proc.Process{}, diskFull(err)
	}
	req := &taskapi.CreateTaskRequest{ContainerID: c.ID, Stdout: log, Stderr: log}
	if shared {
		if err := c.Shim.address(req); err != nil {
			return proc.Process{}, err
		}
		p, err := e.start(ctx, c, req)
		if !unreachable(err) {
			return p, err
		}
		// The shim is gone. Without its address containerd starts another.
		if err := e.rerecord(ctx, c); err != nil {
			return p, diskFull(err)
		}
		req.TaskApiAddress, req.TaskApiVersion, req.Options = "", 0, nil
	}
	p, err := e.start(ctx, c, req)
	for try := 0; shimGone(err) && try < 5 && pause(ctx); try++ {
		p, err = e.start(ctx, c, req)
	}
	return p, err
}

// start makes the task of a container and has it begin.
func (e *Engine) start(ctx context.Context, c Container, req *taskapi.CreateTaskRequest) (proc.Process, error) {
	var gate *gate
	if c.Runtime == "" || c.Runtime == Runc {
		gate = e.openGate(ctx, c.ID)
		defer gate.close()
	}
	tasks := e.client.TaskService()
	task, err := tasks.Create(ctx, req)
	if err != nil {
		return proc.Process{}, diskFull(missingRuntime(c.Runtime, fmt.Errorf("create task: %w", err)))
	}
	p, err := proc.Identify(int(task.Pid))
	if err != nil {
		return proc.Process{}, fmt.Errorf("%w at its start: %w", ErrEnded, err)
	}
	if gate != nil && gate.through() {
		return p.Process, nil
	}
	if _, err := tasks.Start(ctx, &taskapi.StartRequest{ContainerID: c.ID}); err != nil {
		return proc.Process{}, diskFull(fmt.Errorf("start task: %w", err))
	}
	return p.Process, nil
}

// ErrEnded is what Create's error is where process 1 was started and has ended.
var ErrEnded = errors.New("process 1 of the container has ended")

// makeSnapshot makes the snapshot of c. Garbage collection never takes it; Delete removes it.
func (e *Engine) makeSnapshot(ctx context.Context, c Container) (Snapshotted, error) {
	if c.OwnRoot {
		return Snapshotted{}, nil
	}
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	kept := maps.Clone(c.Labels)
	if kept == nil {
		kept = map[string]string{}
	}
	kept[labelRoot] = time.Now().UTC().Format(time.RFC3339)
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: c.HostID, Size: c.Size}}
	mounts, err := prepare(ctx, e.client.SnapshotService(Snapshotter), c.ID, c.Image.Parent,
		client.WithUserNSRemapperLabels(ids, ids), snapshots.WithLabels(kept))
	if err != nil {
		return Snapshotted{}, err
	}
	return snapshotted(mounts)
}

// record makes the container's record. shared: it goes to a shim that containerd is told of.
func (e *Engine) record(ctx context.Context, c Container, shared bool) error {
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	name, opts, err := e.runtime(c.Runtime)
	if err != nil {
		return err
	}
	rec := containers.Container{ID: c.ID, Labels: c.Labels, Image: c.Image.Name, Snapshotter: Snapshotter, Runtime: containers.RuntimeInfo{Name: name}}
	if rec.Spec, err = typeurl.MarshalAny(c.Spec); err != nil {
		return err
	}
	if opts != nil {
		if rec.Runtime.Options, err = typeurl.MarshalAny(opts); err != nil {
			return err
		}
	}
	if !c.OwnRoot {
		rec.SnapshotKey = c.ID
	}
	if shared {
		rec.SandboxID = Namespace
	}
	_, err = e.client.ContainerService().Create(ctx, rec)
	return err
}

// rerecord makes the record anew, of a container that is to share no shim by its address.
func (e *Engine) rerecord(ctx context.Context, c Container) error {
	if err := e.client.ContainerService().Delete(ctx, c.ID); err != nil {
		return fmt.Errorf("container %s: %w", c.ID, err)
	}
	return e.record(ctx, c, false)
}

// prepare makes a writable snapshot. A containerd that was killed between the directory of a snapshot
// and the record of it gives the next one the same number, and then fails because its directory is
// there; clearing up what has no record heals that.
func prepare(ctx context.Context, s snapshots.Snapshotter, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := s.Prepare(ctx, key, parent, opts...)
	if cleaner, ok := s.(snapshots.Cleaner); err != nil && ok && strings.Contains(err.Error(), syscall.EEXIST.Error()) {
		if cerr := cleaner.Cleanup(ctx); cerr != nil {
			return nil, fmt.Errorf("snapshot: %w", errors.Join(err, cerr))
		}
		mounts, err = s.Prepare(ctx, key, parent, opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return mounts, nil
}

// Delete kills what runs in container id and removes its task, record and snapshot, whatever of it is
// there. Nothing there is no error.
func (e *Engine) Delete(ctx context.Context, id string) error {
	ctx, cancel := call(ctx, taskTimeout)
	defer cancel()
	err := e.deleteAll(ctx, id)
	for try := 0; shimGone(err) && try < 5 && pause(ctx); try++ {
		err = e.deleteAll(ctx, id)
	}
	return err
}

// shimGone reports whether a call failed because its shim has just ended. Containers share one: the last that
// is deleted takes it along while another is being made in it, or deleted. Asked again, containerd sees that it
// is gone, and starts a new one where that is needed.
func shimGone(err error) bool {
	return err != nil && strings.Contains(err.Error(), ttrpc.ErrClosed.Error())
}

// unreachable reports whether a call failed because its shim was not there, or has just ended.
func unreachable(err error) bool {
	return shimGone(err) || err != nil && (strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) || strings.Contains(err.Error(), "failed to load sandbox task"))
}

// pause waits a moment, and says whether ctx still goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}

func (e *Engine) deleteAll(ctx context.Context, id string) error {
	cont, err := e.client.LoadContainer(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("container %s: %w", id, err)
	}
	if err == nil {
		if err := e.deleteTask(ctx, cont); err != nil {
			return err
		}
		if err := e.deleteBundle(id); err != nil {
			return err
		}
		if err := cont.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove container %s: %w", id, err)
		}
	}
	err = e.client.SnapshotService(Snapshotter).Remove(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return e.deleteState(ctx, id)
}

// deleteTask kills the task and waits until it is gone.
func (e *Engine) deleteTask(ctx context.Context, cont client.Container) error {
	task, err := cont.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", cont.ID(), err)
	}
	exited, err := task.Wait(ctx)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for task %s: %w", cont.ID(), err)
	}
	// Killed by its group it is over already: then no runtime's program need run for that. A runtime may also fail to kill what has
	// just ended by itself.
	if running(task) {
		if err := task.Kill(ctx, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) && running(task) {
			return fmt.Errorf("kill task %s: %w", cont.ID(), err)
		}
	}
	if !ended(ctx, exited, func() bool { return running(task) }) {
		return fmt.Errorf("task %s does not end: %w", cont.ID(), ctx.Err())
	}
	_, err = task.Delete(ctx)
	if errdefs.IsFailedPrecondition(err) { // so says the client, which knows of no end
		_, err = e.client.TaskService().Delete(ctx, &taskapi.DeleteTaskRequest{ContainerID: cont.ID()})
	}
	if err != nil && !errdefs.IsNotFound(err) {
		if _, terr := cont.Task(ctx, nil); errdefs.IsNotFound(terr) {
			return nil // it is gone; it was its shim that did not end in order, which is removed as one that serves nothing
		}
		return fmt.Errorf("remove task %s: %w", cont.ID(), err)
	}
	return nil
}

// toldLate is how long after a process's end its runtime may take to say so.
const toldLate = 2 * time.Second

// ended waits until a task is over, and reports whether it is. A runtime that was killed while it made the task, or with
// it, never tells: then the process that is gone does.
func ended[T any](ctx context.Context, exited <-chan T, alive func() bool) bool {
	look := time.NewTicker(toldLate)
	defer look.Stop()
	for gone := false; ; gone = !alive() {
		if gone {
			return true
		}
		select {
		case <-exited:
			return true
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// running says whether a task's process is there.
func running(task client.Task) bool {
	_, err := proc.Identify(int(task.Pid()))
	return err == nil
}

// Listed is a container as List finds it.
type Listed struct {
	ID      string
	Labels  map[string]string
	Created time.Time
	Process proc.Process // of process 1; zero where none runs
	Err     error        // why it is not known whether one runs
}

// How many tasks List asks at once, and how long it waits for one.
const (
	askers     = 8
	askTimeout = 10 * time.Second
)

// List gives the containers that carry this label with this value. One whose shim does not answer has an
// Err, and keeps nobody from knowing the others.
func (e *Engine) List(parent context.Context, label, value string) ([]Listed, error) {
	ctx, cancel := call(parent, callTimeout)
	defer cancel()
	conts, err := e.client.ContainerService().List(ctx, fmt.Sprintf("labels.%q==%q", label, value))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	list := make([]Listed, len(conts))
	var asking sync.WaitGroup
	places := make(chan struct{}, askers)
	for i, c := range conts {
		l := &list[i]
		*l = Listed{ID: c.ID, Labels: c.Labels, Created: c.CreatedAt}
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			ask, cancel := call(parent, askTimeout)
			defer cancel()
			l.Process, l.Err = e.process1(ask, l.ID)
		})
	}
	asking.Wait()
	return list, parent.Err()
}

// process1 is the running process 1 of container id, or zero.
func (e *Engine) process1(ctx context.Context, id string) (proc.Process, error) {
	cont, err := e.client.LoadContainer(ctx, id)
	if errdefs.IsNotFound(err) {
		return proc.Process{}, nil
	}
	if err != nil {
		return proc.Process{}, fmt.Errorf("container %s: %w", id, err)
	}
	task, err := cont.Task(ctx, nil)
	if err != nil {
		if errdefs.IsNotFound(err) {
			return proc.Process{}, nil
		}
		return proc.Process{}, fmt.Errorf("task %s: %w", id, err)
	}
	p, err := proc.Identify(int(task.Pid()))
	if err != nil {
		return proc.Process{}, nil // ended; its pid means nothing more
	}
	return p.Process, nil
}

// Snapshots gives the keys of the snapshots of containers that carry this label with this value.
func (e *Engine) Snapshots(ctx context.Context, label, value string) ([]string, error) {
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	var keys []string
	err := e.client.SnapshotService(Snapshotter).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		keys = append(keys, i.Name)
		return nil
	}, fmt.Sprintf("kind==active,labels.%q==%q", label, value), fmt.Sprintf("kind==view,labels.%q==%q", label, value))
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return keys, nil
}
