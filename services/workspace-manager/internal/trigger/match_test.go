package trigger_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/trigger"
)

func TestMatchMessage(t *testing.T) {
	m := &workspace.Trigger{Message: &workspace.MessageTrigger{To: "reviewer", From: []string{"analyst", "planner"}}}
	require.True(t, trigger.MatchMessage(m, "reviewer", "planner"))
	require.False(t, trigger.MatchMessage(m, "reviewer", "stranger"))
	require.False(t, trigger.MatchMessage(m, "analyst", "planner"))
	require.False(t, trigger.MatchMessage(&workspace.Trigger{Event: &workspace.EventTrigger{}}, "", ""))
}

func TestMatchEvent(t *testing.T) {
	e := &workspace.Trigger{Event: &workspace.EventTrigger{Events: []string{"complete", "error"}, Agents: []string{"analyst"}, Labels: map[string]string{"run": "1"}}}
	task := func(agent, run string) *workspace.Task {
		return &workspace.Task{Submission: workspace.Submission{Agent: agent, Labels: map[string]string{"run": run, "x": "y"}}}
	}
	require.True(t, trigger.MatchEvent(e, "complete", task("analyst", "1")))
	require.False(t, trigger.MatchEvent(e, "running", task("analyst", "1")))
	require.False(t, trigger.MatchEvent(e, "complete", task("analyst", "2")))
	require.False(t, trigger.MatchEvent(e, "complete", task("other", "1")))
	require.False(t, trigger.MatchEvent(e, "complete", task("", "1")))
	require.False(t, trigger.MatchEvent(&workspace.Trigger{}, "complete", task("analyst", "1")))
}

func TestParseGroup(t *testing.T) {
	g, err := trigger.ParseGroup("", "")
	require.NoError(t, err)
	require.Nil(t, g)
	g, err = trigger.ParseGroup("run-1", "3")
	require.NoError(t, err)
	require.Equal(t, &workspace.Group{ID: "run-1", Size: 3}, g)
	for _, c := range [][2]string{{"g", ""}, {"", "3"}, {"g", "0"}, {"g", "-1"}, {"g", "+3"}, {"g", "10001"}, {"g", "3.0"}, {"a b", "3"}} {
		_, err := trigger.ParseGroup(c[0], c[1])
		require.Error(t, err, c)
	}
}

func TestJoin(t *testing.T) {
	g := &workspace.Gather{Group: workspace.Group{ID: "g", Size: 2}}
	join := func(member string, seq uint64, changed, complete bool) {
		t.Helper()
		c, d := trigger.Join(g, workspace.GatherMember{Member: member, Sequence: seq}, 0)
		require.Equal(t, [2]bool{changed, complete}, [2]bool{c, d})
	}
	join("a", 5, true, false)
	join("a", 5, false, false) // delivered again
	join("a", 7, true, false)  // its second attempt says it anew
	join("a", 5, false, false) // and an old delivery does not bring the first back
	join("b", 8, true, true)
	join("b", 8, false, true)
	join("c", 9, false, true) // one more than the group has
	require.Equal(t, []workspace.GatherMember{{Member: "a", Sequence: 7}, {Member: "b", Sequence: 8}}, g.Members)
	g.Task = "started"
	join("b", 10, false, true)
}

func FuzzParseGroup(f *testing.F) {
	f.Add("g", "3")
	f.Fuzz(func(t *testing.T, id, size string) {
		g, err := trigger.ParseGroup(id, size)
		if err == nil && g != nil {
			require.NotEmpty(t, g.ID)
			require.True(t, g.Size >= 1 && g.Size <= 10_000)
		}
	})
}
