package sandbox

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// count writes a number every few milliseconds; whoever reads it can tell a gap.
const count = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.005; done"

func counted() string {
	var out []byte
	for i := range 200 {
		out = append(out, []byte(strconv.Itoa(i)+"\n")...)
	}
	return string(out)
}

// The node's process starts anew: its sandboxes are found, and a running command's output goes on.
func TestAdoption(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	s := create(t, n, func(s *Spec) { s.Task, s.Attempt = schemas.NewID(), 3 })
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}))
	p, err := s.Supervisor().Start(within(t, 10*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", count), Identity: Payload(), Output: supervisor.OutputLossless,
		Env: supervisor.Texts("PATH=/bin:/usr/bin"),
	})
	require.NoError(t, err)
	id := p.ID()
	var out []byte
	for len(out) < 100 {
		e, err := p.Next(within(t, 10*time.Second))
		require.NoError(t, err)
		require.EqualValues(t, len(out), e.Offset)
		out = append(out, e.Data...)
	}
	require.NoError(t, p.Close())
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())

	n = newNode(t, machine.Engine(t))
	adopted, err := n.Adopt(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Len(t, adopted, 1)
	again := adopted[0]
	require.Equal(t, s.Spec(), again.Spec(), "the labels tell all of it")
	require.Equal(t, s.HostUID(), again.HostUID())
	p, err = again.Supervisor().Attach(within(t, 10*time.Second), id, supervisor.Offsets{Stdout: uint64(len(out))})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	for {
		e, err := p.Next(within(t, 20*time.Second))
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e.Exit == nil {
			require.EqualValues(t, len(out), e.Offset)
			out = append(out, e.Data...)
		}
	}
	require.Equal(t, counted(), string(out))
	_, secret := sh(t, again, "cat /run/secrets/token")
	require.Equal(t, "hunter2", secret)
	more, err := n.Adopt(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Empty(t, more, "what is held is not found again")
	removed, err := n.Reconcile(within(t, 20*time.Second), func(string) bool { return false })
	require.NoError(t, err)
	require.True(t, removed.Empty(), "what is held stays: %v", removed)
	require.NoError(t, again.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
}

// containerd is killed: sandboxes go on, it is started again, and knows them.
func TestContainerdKilled(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	before, err := proc.Read(machine.RunDir + "/containerd.pid")
	require.NoError(t, err)
	require.NoError(t, before.Signal(syscall.SIGKILL))
	_, out := sh(t, s, "echo still here")
	require.Equal(t, "still here\n", out)
	require.NoError(t, s.Pause(within(t, 10*time.Second)), "freezing does without containerd")
	require.NoError(t, s.Resume(within(t, 10*time.Second)))
	require.Eventually(t, func() bool {
		now, err := proc.Read(machine.RunDir + "/containerd.pid")
		return err == nil && now != before && now.Alive()
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, n.engine.Ready(within(t, 20*time.Second)))
	other := create(t, n)
	_, out = sh(t, other, "echo new")
	require.Equal(t, "new\n", out)
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	require.NoError(t, other.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
}

// containerd is killed in the middle of making sandboxes: each is whole or leaves nothing.
func TestContainerdKilledWhileCreating(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	require.NoError(t, n.Image(within(t, time.Minute), "base"))
	for i := range 6 {
		p, err := proc.Read(machine.RunDir + "/containerd.pid")
		require.NoError(t, err)
		kill := time.AfterFunc(time.Duration(5+12*i)*time.Millisecond, func() { _ = p.Signal(syscall.SIGKILL) })
		spec := testSpec()
		s, err := n.Create(within(t, 30*time.Second), spec)
		kill.Stop()
		if err == nil {
			_, out := sh(t, s, "echo whole")
			require.Equal(t, "whole\n", out)
		}
		require.Eventually(t, func() bool { return n.engine.Ready(within(t, 10*time.Second)) == nil }, time.Minute, 20*time.Millisecond)
		if err == nil {
			require.NoError(t, s.Destroy(within(t, 20*time.Second)))
		} else if left, held := n.Get(spec.ID); held {
			require.NoError(t, left.Destroy(within(t, 20*time.Second)), "what could not be removed then can be now")
		}
		_, err = n.Reconcile(within(t, 20*time.Second), func(string) bool { return false })
		require.NoError(t, err)
		requireNothing(t, n)
	}
}

// What a process that died left behind in every stage is found and removed, what is wanted stays.
func TestReconcile(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	whole, wanted := create(t, n, func(s *Spec) { s.Files = true }), create(t, n)
	half := n.sandbox(testSpec())
	namespaces, err := n.prepare(half)
	require.NoError(t, err, "no container yet")
	require.NoError(t, namespaces())
	bare := testSpec().ID
	_, err = n.ranges.take(bare)
	require.NoError(t, err)
	stuck := create(t, n)
	require.NoError(t, stuck.Pause(within(t, 10*time.Second)))
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())

	n = newNode(t, machine.Engine(t))
	removed, err := n.Reconcile(within(t, 60*time.Second), func(id string) bool { return id == wanted.ID() })
	require.NoError(t, err)
	require.ElementsMatch(t, []string{whole.ID(), half.ID(), bare, stuck.ID()}, slices.Collect(maps.Keys(removed.Sandboxes)))
	require.ElementsMatch(t, []string{"container", "task", "bundle", "snapshot", "runtime", "directory", "socket", "mount", "namespace", "cgroup", "range"}, removed.Sandboxes[whole.ID()])
	require.ElementsMatch(t, []string{"directory", "socket", "mount", "namespace", "range"}, removed.Sandboxes[half.ID()])
	require.Equal(t, []string{"range"}, removed.Sandboxes[bare])
	adopted, err := n.Adopt(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Len(t, adopted, 1)
	_, out := sh(t, adopted[0], "echo wanted")
	require.Equal(t, "wanted\n", out)
	require.NoError(t, adopted[0].Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
	removed, err = n.Reconcile(within(t, 20*time.Second), func(string) bool { return false })
	require.NoError(t, err)
	require.True(t, removed.Empty(), "%v", removed)
}

// A sandbox whose process 1 died while nobody looked is not adopted.
func TestADeadSandboxIsNotAdopted(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	s := create(t, n)
	require.NoError(t, n.Close())
	require.NoError(t, s.init.Signal(syscall.SIGKILL))
	require.NoError(t, s.init.Wait(within(t, 10*time.Second)))
	require.NoError(t, engine.Close())
	n = newNode(t, machine.Engine(t))
	adopted, err := n.Adopt(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Empty(t, adopted)
	removed, err := n.Reconcile(within(t, 20*time.Second), func(string) bool { return false })
	require.NoError(t, err)
	require.Equal(t, []string{s.ID()}, slices.Collect(maps.Keys(removed.Sandboxes)))
	requireNothing(t, n)
}

func newNodeWithoutCleanup(t *testing.T, e *containerd.Engine) *Node {
	n, err := Open(e, Config{DataDir: machine.DataDir, RunDir: machine.RunDir, Init: machine.Init, Forwards: supervisor.DefaultForwards(), Log: machine.Config.Log})
	require.NoError(t, err)
	return n
}
