package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// wantPool has the manager want a pool of the runs that script makes.
func (w *world) wantPool(tenant string, min, max int, change ...func(*workspace.WantedPool)) workspace.PoolRef {
	p := workspace.WantedPool{PoolRef: workspace.PoolRef{Tenant: tenant, Workspace: "-", Name: "base"}, Run: script(""), Min: min, Max: max}
	p.Run.Principal, p.Run.Argv, p.Run.Resources = "", nil, workspace.Resources{}
	for _, c := range change {
		c(&p)
	}
	w.with(func() { w.pools = append(w.pools, p) })
	return p.PoolRef
}

// state waits until the node's heartbeat says of a pool what ok wants.
func (w *world) state(t testing.TB, ref workspace.PoolRef, ok func(workspace.PoolState) bool) workspace.PoolState {
	t.Helper()
	var last workspace.PoolState
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.beats) == 0 {
			return false
		}
		for _, p := range w.beats[len(w.beats)-1].Pools {
			if p.PoolRef == ref {
				last = p
				return ok(p)
			}
		}
		return false
	}, 60*time.Second, 10*time.Millisecond, "pool %v does not come to be as it should; it is %+v", ref, &last)
	return last
}

func ready(n int) func(workspace.PoolState) bool {
	return func(p workspace.PoolState) bool { return p.Ready == n && p.Making == 0 }
}

// noPools has the manager want none, and waits until no member is left.
func (w *world) noPools(t testing.TB) {
	t.Helper()
	w.with(func() { w.pools = nil })
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(filepath.Join(machine.RunDir, "sb"))
		return os.IsNotExist(err) || err == nil && len(entries) == 0
	}, 60*time.Second, 20*time.Millisecond, "a pool that nobody wants is emptied")
}

func ids(boxes []*sandbox.Sandbox) (out []string) {
	for _, b := range boxes {
		out = append(out, b.ID())
	}
	return out
}

func warmSpec(id, tenant string) sandbox.Spec {
	return sandbox.Spec{ID: id, Generation: 1, Tenant: tenant, Workspace: "demo", Principal: "planner", Image: "base", Level: "standard"}
}

func TestRunsTakeWarmSandboxes(t *testing.T) {
	w, n := start(t)
	shared := w.wantPool("system", 1, 1)
	w.wantPool("umbrella", 1, 1)
	own := w.wantPool("acme", 1, 3)
	w.state(t, own, ready(1))
	w.state(t, shared, ready(1))
	require.Equal(t, 0, n.s.status().Used, "members take no slots")

	id := newTask()
	w.submit(id, script(`echo "$WEFT_PRINCIPAL at $(hostname)"; cat head.txt; cat $WEFT_INPUT`), `{"n":1}`)
	f := w.finished(id)
	require.Nil(t, f.Fault)
	out, _ := w.read(id, "stdout")
	require.Equal(t, "planner at planner\nfrom the head\n{\"n\":1}", out)
	st := w.state(t, own, func(p workspace.PoolState) bool { return p.Claims == 1 && p.Ready == 1 })
	require.Zero(t, st.Misses)
	require.NotNil(t, st.Oldest)

	// What needs what no member has, starts cold.
	id = newTask()
	run := script("true")
	run.Resources.DiskBytes = 4 << 20
	w.submit(id, run, "")
	require.Nil(t, w.finished(id).Fault)
	w.state(t, own, func(p workspace.PoolState) bool { return p.Claims == 1 && p.Misses == 1 })

	// The run's own tenant's first, then everybody's, never another's; and demand raises the target.
	for _, want := range []workspace.PoolRef{own, shared} {
		var box *sandbox.Sandbox
		n.s.warm.mu.Lock() // no refill in between
		for _, p := range n.s.warm.pools {
			p.retryAt = time.Now().Add(time.Hour)
		}
		n.s.warm.mu.Unlock()
		box = n.s.warm.claim(t.Context(), warmSpec(newTask(), "acme"))
		require.NotNil(t, box)
		w.state(t, want, func(p workspace.PoolState) bool { return p.Ready == 0 })
		require.NoError(t, box.Destroy(t.Context()))
	}
	for range 5 { // a burst
		require.Nil(t, n.s.warm.claim(t.Context(), warmSpec(newTask(), "acme")), "the pool of umbrella has one, but not for acme")
	}
	w.state(t, own, func(p workspace.PoolState) bool { return p.Target == 3 && p.Misses == 6 })
	n.s.warm.mu.Lock()
	for _, p := range n.s.warm.pools {
		p.retryAt = time.Time{}
	}
	n.s.warm.mu.Unlock()
	w.state(t, own, ready(3))
	w.noPools(t)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 30*time.Second, time.Millisecond)
}

// Members wait on while the node's process is away, and are replaced when their template is another one; an image that
// can't be had is said, and holds up no other pool.
func TestMembersOutliveTheNodesProcess(t *testing.T) {
	w, n := start(t)
	own := w.wantPool("acme", 2, 2)
	gone := w.wantPool("acme", 1, 1, func(p *workspace.WantedPool) {
		p.Name, p.Run.Image = "gone", filepath.Join(machine.Config.ImageDirs[0], "no-such-archive.tar")
	})
	w.state(t, own, ready(2))
	st := w.state(t, gone, func(p workspace.PoolState) bool { return p.Fault != nil })
	require.Equal(t, "not_found", st.Fault.Code)
	running := newTask()
	w.submit(running, script("echo ready; sleep 1; cat head.txt; hostname"), "")
	require.Eventually(t, func() bool { out, _ := w.read(running, "stdout"); return out == "ready\n" }, 30*time.Second, 5*time.Millisecond)
	w.state(t, own, func(p workspace.PoolState) bool { return p.Claims == 1 && p.Ready == 2 && p.Making == 0 })
	before := ids(n.s.node.Members())
	require.Len(t, before, 2)
	n.stop()

	n = startNode(t, w.config())
	require.Nil(t, w.finished(running).Fault)
	out, _ := w.read(running, "stdout")
	require.Equal(t, "ready\nfrom the head\nplanner\n", out, "what runs in one that was claimed goes on")
	w.state(t, own, ready(2))
	require.ElementsMatch(t, before, ids(n.s.node.Members()))
	id := newTask()
	w.submit(id, script("echo warm"), "")
	require.Nil(t, w.finished(id).Fault)
	w.state(t, own, func(p workspace.PoolState) bool { return p.Claims == 1 && p.Ready == 2 })
	before = ids(n.s.node.Members())

	w.with(func() { w.pools[0].Run.Resources.DiskBytes = 4 << 20 })
	require.Eventually(t, func() bool {
		now := n.s.node.Members()
		for _, b := range now {
			if m, _, _ := b.Blank(); m.Resources.DiskBytes != 4<<20 || slices.Contains(before, b.ID()) {
				return false
			}
		}
		return len(now) == 2
	}, 60*time.Second, 20*time.Millisecond, "they are made anew")

	// A member that died is noticed, and made good.
	w.state(t, own, ready(2))
	victim := n.s.node.Members()[0]
	require.NoError(t, victim.Stop(t.Context()))
	require.Eventually(t, func() bool {
		_, there := n.s.node.Get(victim.ID())
		return !there && len(n.s.node.Members()) == 2
	}, 60*time.Second, 20*time.Millisecond)

	n.s.Drain(t.Context(), false)
	box := n.s.warm.claim(t.Context(), sandbox.Spec{ID: newTask(), Generation: 1, Tenant: "acme", Workspace: "demo", Principal: "planner", Image: "base",
		Resources: workspace.Resources{DiskBytes: 4 << 20}})
	require.NotNil(t, box)
	require.NoError(t, box.Destroy(t.Context()))
	require.True(t, n.s.warm.closed(), "a node that is being drained makes none")
	require.NotEmpty(t, n.s.node.Members())
	n.stop()
	require.NoError(t, Purge(t.Context(), w.config()), "and takes them along")
}

// Killed while a warm sandbox is being bound, and started again: the attempt ends once and well, and the member that was
// claimed is nobody else's.
func TestKilledWhileAWarmSandboxIsBound(t *testing.T) {
	w, p := newProcess(t)
	for _, point := range []string{sandbox.FailAfterRecord, fpAfterBind} {
		t.Run(point, func(t *testing.T) {
			p.t = t
			t.Cleanup(func() { p.signal(syscall.SIGKILL) })
			w.with(func() { w.beats, w.pools = nil, nil })
			own := w.wantPool("acme", 1, 1)
			p.run(point)
			w.state(t, own, ready(1))
			id := newTask()
			w.queued(id, "default", countingRun())
			p.died()
			w.with(func() { w.beats = nil })
			p.run("")
			w.requireGoodEnd(t, id)
			w.state(t, own, ready(1))
			w.noPools(t)
			p.signal(syscall.SIGTERM)
			requireClean(t, w)
		})
	}
}
