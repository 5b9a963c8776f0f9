package demo

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

func finished1(id, agent, folder string) workspace.Task {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	after := func(ms int) *time.Time { t := at.Add(time.Duration(ms) * time.Millisecond); return &t }
	t := workspace.Task{ID: id, State: workspace.Complete, CreatedAt: at, Submission: workspace.Submission{Agent: agent},
		Attempt: workspace.Attempt{Number: 1, StartedAt: after(20), FirstOutputAt: after(320), EndedAt: after(1520),
			Outcome: &workspace.Outcome{FilesChanged: 4, Leases: 2}}}
	if folder != "" {
		t.Submission.Labels = map[string]string{labelFolder: folder}
	}
	return t
}

func TestTaskTable(t *testing.T) {
	waiting := workspace.Task{ID: "11111111111111111111", State: workspace.Pending, Submission: workspace.Submission{Agent: planner}}
	tasks := []workspace.Task{finished1("pgl4qtiouuldc2vrc4or", analyst, "services"), waiting}
	require.Equal(t, []string{
		"TASK                  AGENT             STATE     TRY  QUEUED  OUTPUT  TOOK  FILES  LEASES",
		"pgl4qtiouuldc2vrc4or  analyst services  complete    1      20     300  1500      4       2",
		"11111111111111111111  planner           pending     0       -       -     -",
	}, taskTable(tasks, 100))
	for _, l := range taskTable([]workspace.Task{finished1("pgl4qtiouuldc2vrc4or", analyst, strings.Repeat("long", 20))}, 80) {
		require.LessOrEqual(t, utf8.RuneCountInString(l), 80, l)
	}
}

func TestTaskTableOfManyTasksIsShort(t *testing.T) {
	var tasks []workspace.Task
	for i := range 100 {
		tasks = append(tasks, finished1(fmt.Sprintf("%020d", i), analyst, "x"))
	}
	lines := taskTable(tasks, 120)
	require.Len(t, lines, 1+mostTasks+1)
	require.Contains(t, lines[1+mostTasks/2], "60 more")
	require.Contains(t, lines[len(lines)-1], "00099")
	require.Len(t, tasks, 100)
}

func TestArtifactNames(t *testing.T) {
	for want, task := range map[string]workspace.Task{
		"pass-1-planner.zip":          finished1("x", planner, ""),
		"pass-1-analyst-services.zip": finished1("x", analyst, "services"),
		"pass-1-analyst-top.zip":      finished1("x", analyst, "."),
		"pass-1-analyst-a_b.zip":      finished1("x", analyst, "a/b"),
	} {
		require.Equal(t, want, artifactName(1, task))
	}
}

func TestTaskDetail(t *testing.T) {
	done := finished1("x", analyst, "a")
	require.Equal(t, "task x 4 files changed, 2 leases", taskDetail(&done))
	failed := workspace.Task{ID: "x", State: workspace.Error, Fault: &workspace.Fault{Code: "exhausted", Message: "no room"},
		Attempt: workspace.Attempt{Outcome: &workspace.Outcome{Exit: &workspace.Exit{Code: 1, Reason: "exited"}}}}
	require.Equal(t, "task x exit 1, exited exhausted: no room", taskDetail(&failed))
	again := workspace.Task{ID: "x", State: workspace.Queued, Attempt: workspace.Attempt{Fault: &workspace.Fault{Code: "unavailable"}}}
	require.Equal(t, "task x", taskDetail(&again), "what was wrong with an earlier try is told once")
	require.Error(t, unlucky(&followed{Task: failed}))
	require.NoError(t, unlucky(nil, &followed{Task: done}))
}

func TestDaemonRunsOnEmbeddedDefaults(t *testing.T) {
	got := daemonEnv([]string{"PATH=/bin", "WEFT_DATA_DIR=/x", "WEFT_MEMORY=mongodb://x", "WEFT_CACHE=/c", "WEFT_RUNC_BIN=/r", "VAULT_ADDR=http://x", "VAULT_TOKEN=t", "HOME=/root"})
	require.Equal(t, []string{"PATH=/bin", "WEFT_CACHE=/c", "WEFT_RUNC_BIN=/r", "HOME=/root"}, got)
}
