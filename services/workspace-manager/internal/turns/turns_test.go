package turns_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/turns"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func item(tenant, id string, n int, tweak ...func(*turns.Item)) turns.Item {
	it := turns.Item{Key: turns.Key{Tenant: tenant, Workspace: "w", ID: id}, Agent: "a", State: workspace.Pending, Since: t0.Add(time.Duration(n) * time.Second)}
	for _, f := range tweak {
		f(&it)
	}
	return it
}

func index(slots, margin int) *turns.Index {
	x := turns.New(margin)
	x.SetNode("n1", turns.Node{Ready: true, Slots: slots})
	return x
}

func all(x *turns.Index) (ids []string) {
	for {
		g, ok := x.Next(t0.Add(time.Hour))
		if !ok {
			return ids
		}
		ids = append(ids, g.ID)
	}
}

func TestRoomKeepsTheQueueShallow(t *testing.T) {
	x := turns.New(2)
	for i := range 20 {
		x.Put(item("acme", fmt.Sprint(i), i))
	}
	require.Empty(t, all(x), "no node, nothing is admitted")
	x.SetNode("n1", turns.Node{Ready: true, Slots: 4, Held: 1})
	require.Len(t, all(x), 5)
	run := item("acme", "0", 0, func(it *turns.Item) { it.State, it.Node = workspace.Running, "n1" })
	x.Put(run)
	require.Empty(t, all(x), "running takes the place that queued took")
	run.State = workspace.Complete
	x.Put(run)
	require.Equal(t, []string{"5"}, all(x))
	x.SetNode("n1", turns.Node{Ready: false, Slots: 4})
	x.SetNode("n2", turns.Node{Ready: true, Slots: 8})
	require.Len(t, all(x), 5, "what is queued counts, what a lost node ran does not")
}

func TestPriorityThenAge(t *testing.T) {
	x := index(100, 0)
	prio := func(p workspace.Priority) func(*turns.Item) { return func(it *turns.Item) { it.Priority = p } }
	x.Put(item("acme", "low", 1, prio(workspace.Low)))
	x.Put(item("acme", "young", 9))
	x.Put(item("acme", "old", 2, prio(workspace.Normal)))
	x.Put(item("acme", "high", 10, prio(workspace.High)))
	x.Put(item("acme", "other-agent", 3, func(it *turns.Item) { it.Agent = "b" }))
	require.Equal(t, []string{"high", "old", "other-agent", "young", "low"}, all(x))
}

func TestLimitsHoldBackOnlyTheirOwn(t *testing.T) {
	x := index(100, 0)
	x.SetAgent("acme", "w", "a", 2)
	x.SetWorkspace("acme", "v", 1)
	for i := range 5 {
		x.Put(item("acme", fmt.Sprint("a", i), i))
		x.Put(item("acme", fmt.Sprint("v", i), i, func(it *turns.Item) { it.Workspace, it.Agent = "v", "b" }))
		x.Put(item("acme", fmt.Sprint("c", i), 100+i, func(it *turns.Item) { it.Agent = "" }))
	}
	require.ElementsMatch(t, []string{"a0", "a1", "v0", "c0", "c1", "c2", "c3", "c4"}, all(x))
	x.SetTenant("acme", turns.Limits{MaxRunning: 9})
	x.SetAgent("acme", "w", "a", 0)
	require.Equal(t, []string{"a2"}, all(x))
}

func TestTurnsBetweenTenants(t *testing.T) {
	count := func(ids []string) map[byte]int {
		n := map[byte]int{}
		for _, id := range ids {
			n[id[0]]++
		}
		return n
	}
	for name, c := range map[string]struct {
		weights map[string]int
		want    map[byte]int
	}{
		"equal":    {nil, map[byte]int{'a': 20, 'b': 20}},
		"weighted": {map[string]int{"a": 3}, map[byte]int{'a': 30, 'b': 10}},
	} {
		t.Run(name, func(t *testing.T) {
			x := index(40, 0)
			for tn, w := range c.weights {
				x.SetTenant(tn, turns.Limits{Weight: w})
			}
			for i := range 1000 { // a floods first, b comes much later
				x.Put(item("a", fmt.Sprint("a", i), i))
			}
			for i := range 100 {
				x.Put(item("b", fmt.Sprint("b", i), 5000+i))
			}
			require.Equal(t, c.want, count(all(x)))
		})
	}
}

func TestTurnsWhileTasksEndAtOnce(t *testing.T) {
	x := index(1, 0)
	for i := range 400 {
		x.Put(item("a", fmt.Sprint("a", i), i))
	}
	next := func() string {
		g, ok := x.Next(t0)
		require.True(t, ok)
		it := item(g.Tenant, g.ID, 0)
		it.State = workspace.Complete
		x.Put(it)
		return g.Tenant
	}
	for range 200 {
		require.Equal(t, "a", next())
	}
	for i := range 100 {
		x.Put(item("b", fmt.Sprint("b", i), i))
	}
	n := map[string]int{}
	for range 100 {
		n[next()]++
	}
	require.InDelta(t, 50, n["b"], 1, "b starts where a is: it has saved up no turns, and lost none")
}

func TestLaterUntilDue(t *testing.T) {
	x := index(10, 0)
	due := t0.Add(time.Minute)
	x.Put(item("acme", "later", 0, func(it *turns.Item) { it.NotBefore = due }))
	x.Put(item("acme", "gone", 0, func(it *turns.Item) { it.NotBefore = due.Add(-time.Second) }))
	x.Remove(turns.Key{Tenant: "acme", Workspace: "w", ID: "gone"})
	_, ok := x.Next(t0)
	require.False(t, ok)
	require.Equal(t, due, x.Due())
	n, w := x.Pending("acme", "w")
	require.Equal(t, [2]int{1, 1}, [2]int{n, w})
	g, ok := x.Next(due)
	require.True(t, ok)
	require.Equal(t, "later", g.ID)
	x.Release(g.Key, due.Add(time.Second))
	_, ok = x.Next(due)
	require.False(t, ok)
	g, ok = x.Next(due.Add(time.Second))
	require.True(t, ok)
	require.Equal(t, "later", g.ID)
	require.Zero(t, x.Due())
}

func TestPinnedWaitsForItsNode(t *testing.T) {
	x := index(10, 0)
	pin := func(it *turns.Item) { it.Pin = "n2" }
	for i := range 3 {
		x.Put(item("acme", fmt.Sprint("p", i), i, pin))
	}
	x.Put(item("acme", "free", 9))
	require.Equal(t, []string{"free"}, all(x))
	x.SetNode("n2", turns.Node{Ready: true, Slots: 2})
	require.Equal(t, []string{"p0", "p1"}, all(x))
}

func TestNodesOfAnotherPoolRunOnlyWhatIsPinned(t *testing.T) {
	x := index(2, 0)
	x.SetNode("gpu", turns.Node{Ready: true, Apart: true, Slots: 3})
	for i := range 5 {
		x.Put(item("acme", fmt.Sprint("f", i), i))
		x.Put(item("acme", fmt.Sprint("p", i), 100+i, func(it *turns.Item) { it.Pin = "gpu" }))
	}
	require.ElementsMatch(t, []string{"f0", "f1", "p0", "p1", "p2"}, all(x))
}

func TestTenantRemoved(t *testing.T) {
	x := index(10, 0)
	x.Put(item("a", "a1", 0))
	x.Put(item("a", "a2", 0, func(it *turns.Item) { it.State, it.Node = workspace.Running, "n1" }))
	x.Put(item("b", "b1", 0))
	x.RemoveTenant("a")
	require.Equal(t, []string{"b1"}, all(x))
}

// FuzzCounts does anything in any order; at the end, with all removed, nothing may be counted any more.
func FuzzCounts(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 17, 90})
	f.Fuzz(func(t *testing.T, ops []byte) {
		x := index(3, 1)
		states := []workspace.State{workspace.Pending, workspace.Queued, workspace.Running, workspace.Complete}
		for i, op := range ops {
			id, tn := fmt.Sprint(op%7), fmt.Sprint("t", op%3)
			switch op >> 5 {
			case 0, 1, 2, 3:
				x.Put(item(tn, id, i, func(it *turns.Item) {
					it.State, it.Node = states[op>>5], "n1"
					if op%5 == 0 {
						it.NotBefore = t0.Add(time.Duration(op) * time.Second)
					}
				}))
			case 4, 5:
				x.Next(t0.Add(time.Duration(op) * time.Second))
			case 6:
				x.Release(turns.Key{Tenant: tn, Workspace: "w", ID: id}, t0)
			case 7:
				x.Remove(turns.Key{Tenant: tn, Workspace: "w", ID: id})
			}
		}
		for i := range 7 {
			for j := range 3 {
				x.Remove(turns.Key{Tenant: fmt.Sprint("t", j), Workspace: "w", ID: fmt.Sprint(i)})
			}
		}
		for i := range 10 {
			x.Put(item("z", fmt.Sprint(i), i))
		}
		require.Len(t, all(x), 4)
	})
}

func BenchmarkNext(b *testing.B) {
	x := index(1<<30, 0)
	for i := range 100 {
		for j := range 1000 {
			x.Put(item(fmt.Sprint("t", i), fmt.Sprint(i, "-", j), j))
		}
	}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		g, ok := x.Next(t0)
		if !ok {
			b.Fatal("empty")
		}
		x.Put(item(g.Tenant, g.ID, i))
	}
}
