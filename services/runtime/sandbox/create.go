package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Create makes a sandbox and waits until its process 1 is connected. What it leaves behind when it
// fails is removed before it returns; when the process dies in between, by Reconcile.
func (n *Node) Create(ctx context.Context, spec Spec) (*Sandbox, error) {
	_, spec, err := n.resolve(spec)
	if err != nil {
		return nil, err
	}
	s := n.sandbox(spec)
	return s, n.build(ctx, s)
}

// resolve fills in the defaults of a description, and refuses one that is wrong.
func (n *Node) resolve(spec Spec) (Level, Spec, error) {
	level, err := LevelByName(spec.Level)
	if err != nil {
		return level, spec, err
	}
	spec.Level = level.Name
	if err := spec.check(); err != nil {
		return level, spec, fault.Wrap(err, fault.Invalid, "the sandbox's description is wrong: %v", err)
	}
	spec.Resources, err = Resolve(spec.Resources)
	return level, spec, err
}

// build makes what s says, or nothing.
func (n *Node) build(ctx context.Context, s *Sandbox) error {
	level, err := LevelByName(s.spec.Level)
	if err != nil {
		return err
	}
	runtime, err := n.runtimeOf(s.spec, level)
	if err != nil {
		return err
	}
	if err := n.hold(s); err != nil {
		return err
	}
	if err := n.create(ctx, s, level, runtime); err != nil {
		return errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
	}
	return nil
}

// sandbox is a Sandbox of which nothing exists yet.
func (n *Node) sandbox(spec Spec) *Sandbox {
	b := &body{node: n, id: spec.ID, tenant: spec.Tenant, dir: n.dir(spec.ID), group: n.cgroups.Group(spec.ID), gone: make(chan struct{})}
	return &Sandbox{body: b, spec: spec}
}

func (n *Node) create(ctx context.Context, s *Sandbox, level Level, runtime string) error {
	moved := n.cgroups.MoveSoon()
	defer moved()
	image, err := n.engine.Image(ctx, s.spec.Image)
	if err != nil {
		return err
	}
	shim, first := n.joinShim(s, runtime)
	if first {
		defer func() { shim.Release(s.init) }()
	}
	namespaces, err := n.prepare(s)
	defer namespaces() // also before what there is of it is taken away
	if err != nil {
		return fmt.Errorf("prepare sandbox %s: %w", s.spec.ID, err)
	}
	if s.isLate(runtime) {
		if err := s.makeLate(); err != nil {
			return err
		}
	}
	labels, err := s.labels()
	if err != nil {
		return err
	}
	if s.spec.Isolation.WritableRoot {
		if err := n.writableRoot(ctx, s, image, labels); err != nil {
			return err
		}
		s.spec.From = "" // it was taken
	}
	before := func(root containerd.Snapshotted) error {
		if err := namespaces(); err != nil || s.spec.Isolation.WritableRoot {
			return err
		}
		return s.mountSnapshot(root)
	}
	limits := s.limits(level)
	if s.blank != nil {
		limits.PIDs = supervisor.WaitingPIDs
	}
	launch := s.channel.Launch(n.cfg.Init, n.cfg.Forwards...).LimitPIDs(limits.PIDs).LimitMemory(limits.Memory)
	if runtime == containerd.Runsc { // the node refuses gVisor's kernel a thread once, and then it is gone
		launch = launch.NoSpareThreads()
	}
	launch = confined(launch, Describe(level, s.spec))
	if s.hasLate() {
		launch = launch.Late(latePath+"/"+lateFiles, WorkspacePath)
	}
	s.init, err = n.engine.Create(ctx, containerd.Container{
		ID: s.id, Image: image, Spec: n.oci(s, level, runtime, shim, launch), Labels: labels, Runtime: runtime,
		HostID: s.ids.first(), Size: rangeSize, Log: s.path("init.log"), OwnRoot: s.spec.Isolation.WritableRoot, Shim: shim, Before: before,
	})
	moved()
	if errors.Is(err, containerd.ErrEnded) {
		return s.endedAtStart()
	}
	if err != nil {
		if ctx.Err() != nil || fault.CodeOf(err) != fault.Internal {
			return err
		}
		return fault.Wrap(err, fault.Unavailable, "containerd could not make the sandbox")
	}
	n.shims.made(s.shim, s.id)
	s.follow()
	if s.blank != nil || s.spec.Files {
		s.watch.Go(s.foresee)
	}
	if s.blank == nil { // a claim can set a bound, but not take one away
		if err := s.limitIO(); err != nil {
			return err
		}
	}
	return s.WaitConnected(ctx)
}

// prepare makes what the container's spec refers to. The directory comes first: by it, what a dying
// process leaves is found. The namespaces are made meanwhile and after: namespaces waits for them, and must be called.
func (n *Node) prepare(s *Sandbox) (namespaces func() error, err error) {
	namespaces = func() error { return nil }
	for _, dir := range []string{"", "workspace", "memory", "input", "etc"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return namespaces, err
		}
	}
	if s.ids, err = n.ranges.take(s.id); err != nil {
		return namespaces, err
	}
	pinned := make(chan error, 1)
	go func() { pinned <- pinNamespaces(s.path("ns"), s.ids) }()
	namespaces = sync.OnceValue(func() error { return <-pinned })
	return namespaces, n.fill(s)
}

// fill makes what is in the sandbox's directory.
func (n *Node) fill(s *Sandbox) (err error) {
	if err := mountMemory(s.path("memory")); err != nil {
		return err
	}
	if err := os.Mkdir(s.secrets(), 0o500); err != nil {
		return err
	}
	if err := os.Chown(s.secrets(), int(s.HostUID()), int(s.HostUID())); err != nil {
		return err
	}
	for _, f := range etcFiles {
		if err := os.WriteFile(s.path("etc", f), []byte(s.spec.etc(f)), 0o444); err != nil {
			return err
		}
	}
	if s.blank == nil && !s.spec.Files && !s.spec.Isolation.WritableRoot {
		if err := s.mountScratch(); err != nil {
			return err
		}
	}
	s.channel, err = n.server.Add(s.id, supervisor.Owner{UID: s.ids.first(), GID: s.ids.first()})
	return err
}
