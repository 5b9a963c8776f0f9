package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// record notes what it is told, and the order in which stages ran.
type record struct {
	mu      sync.Mutex
	running []string
	waits   map[string][]string
}

func (r *record) Changed(s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits == nil {
		r.waits = map[string][]string{}
	}
	switch s.State {
	case Running:
		r.running = append(r.running, s.Stage.Name)
	case Waiting:
		r.waits[s.Stage.Name] = append(r.waits[s.Stage.Name], s.Why)
	case Done:
	}
}

func TestHeavyStagesShareTheSlotsAndLongOnesGoFirst(t *testing.T) {
	var now, most atomic.Int32
	arrived, both := make(chan struct{}), make(chan struct{})
	var stages []Stage
	for i, name := range []string{"short", "long", "longest"} {
		stages = append(stages, Stage{Name: name, What: name, Heavy: true, Expect: time.Duration(i) * time.Minute, Make: func(context.Context, *Job) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			if name != "short" {
				arrived <- struct{}{} // two at a time, or this waits for ever
				<-both
			}
			return nil
		}})
	}
	var seen record
	go func() { <-arrived; <-arrived; close(both) }()
	_, err := Run(t.Context(), Store{Dir: t.TempDir()}, stages, 2, &seen)
	require.NoError(t, err)
	require.LessOrEqual(t, most.Load(), int32(2))
	require.Equal(t, "short", seen.running[2])
	require.Contains(t, seen.waits["short"], "for a free core")
}

func TestALightStageDoesNotWaitForASlot(t *testing.T) {
	light := make(chan struct{})
	stages := []Stage{
		{Name: "heavy", What: "heavy", Heavy: true, Make: func(context.Context, *Job) error { <-light; return nil }},
		{Name: "light", What: "light", Make: func(context.Context, *Job) error { close(light); return nil }},
	}
	_, err := Run(t.Context(), Store{Dir: t.TempDir()}, stages, 1, nil)
	require.NoError(t, err)
}

func TestAFailureStopsOnlyWhatNeedsIt(t *testing.T) {
	count := 0
	broken := Stage{Name: "compiler", What: "compiler", Make: func(context.Context, *Job) error { return errors.New("no such thing") }}
	needs := writes("tool", "1", "x", &count)
	needs.Needs = []string{"compiler"}
	needsThat := writes("user", "1", "x", &count)
	needsThat.Needs = []string{"tool"}
	other := writes("other", "1", "x", &count)

	results, err := Run(t.Context(), Store{Dir: t.TempDir()}, []Stage{needsThat, needs, broken, other}, 2, nil)
	require.ErrorIs(t, err, ErrUnmade)
	var outcomes []Outcome
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
	}
	require.Equal(t, []Outcome{Skipped, Skipped, Failed, Made}, outcomes)
	require.Equal(t, 1, count)
	require.ErrorContains(t, results[1].Err, "it needs compiler")
}

func TestWhatIsNeededComesFirst(t *testing.T) {
	var seen record
	count := 0
	tool, compiler := writes("tool", "1", "x", &count), writes("compiler", "1", "x", &count)
	tool.Needs, tool.Expect = []string{"compiler", "not planned"}, time.Hour
	_, err := Run(t.Context(), Store{Dir: t.TempDir()}, []Stage{tool, compiler}, 2, &seen)
	require.NoError(t, err)
	require.Equal(t, []string{"compiler", "tool"}, seen.running)
	require.Equal(t, []string{"for compiler"}, seen.waits["tool"])
}

func TestACircleEnds(t *testing.T) {
	a := Stage{Name: "a", What: "a", Needs: []string{"b"}}
	b := Stage{Name: "b", What: "b", Needs: []string{"a"}}
	_, err := Run(t.Context(), Store{Dir: t.TempDir()}, []Stage{a, b}, 1, nil)
	require.ErrorIs(t, err, ErrUnmade)
	require.Zero(t, Estimate([]Stage{a, b}, 1))
}

func TestTwoRunsMakeAThingOnce(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	var count atomic.Int32
	started, release := make(chan struct{}), make(chan struct{})
	stage := Stage{Name: "tool", What: "tool", Version: "1", Files: []string{"bin/tool"}, Make: func(_ context.Context, job *Job) error {
		if count.Add(1) == 1 {
			close(started)
			<-release
		}
		return os.WriteFile(filepath.Join(job.Dir, "bin", "tool"), []byte("x"), 0o755)
	}}
	outcomes := make(chan Outcome, 2)
	run := func(watch Watcher) {
		results, _ := Run(t.Context(), store, []Stage{stage}, 1, watch)
		outcomes <- results[0].Outcome
	}
	go run(nil)
	<-started
	go run(onWait(func() { close(release) })) // the second one sees the lock, then the first may end
	require.ElementsMatch(t, []Outcome{Made, Cached}, []Outcome{<-outcomes, <-outcomes})
	require.EqualValues(t, 1, count.Load())
}

type onWait func()

func (f onWait) Changed(s Status) {
	if s.State == Waiting && strings.Contains(s.Why, "another run") {
		f()
	}
}

func TestWhatTheMachineHasIsNotMade(t *testing.T) {
	stage := Stage{Name: "tool", What: "tool", Files: []string{"bin/tool"}, Installed: func(context.Context) (string, bool) { return "/usr/bin/tool", true }}
	result := one(t, Store{Dir: t.TempDir()}, stage)
	require.Equal(t, Installed, result.Outcome)
	require.Equal(t, "/usr/bin/tool", result.Where)
}

func TestAnInterruptEndsAllThatACommandStarted(t *testing.T) {
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	stage := Stage{Name: "tool", What: "tool", Files: []string{"bin/tool"}, Make: func(ctx context.Context, job *Job) error {
		return job.Run(ctx, exec.Command("/bin/sh", "-c", fmt.Sprintf("sleep 600 & echo $! >%s.new; mv %s.new %s; wait", pidFile, pidFile, pidFile)))
	}}
	ended := make(chan Result)
	store := Store{Dir: filepath.Join(dir, "store")}
	go func() {
		results, _ := Run(ctx, store, []Stage{stage}, 1, nil)
		ended <- results[0]
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(pidFile); return err == nil }, 10*time.Second, 5*time.Millisecond)
	cancel()
	result := <-ended
	require.ErrorIs(t, result.Err, context.Canceled)
	require.NoDirExists(t, filepath.Join(store.Dir, "tmp", "tool"))

	text, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 5*time.Millisecond, "the grandchild lives on")
}

// alive reports whether a process runs; one that nobody has waited for yet doesn't.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestOutputGoesToALogOfWhichTheLastLineIsShown(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	var last string
	stage := Stage{Name: "tool", What: "tool", Make: func(ctx context.Context, job *Job) error {
		err := job.Run(ctx, exec.Command("/bin/sh", "-c", "echo compiling; printf 'half a '; printf 'line\\n\\n'; echo went wrong >&2; exit 3"))
		last = job.log.lastLine()
		return err
	}}
	result := one(t, store, stage)
	require.Equal(t, Failed, result.Outcome)
	require.ErrorContains(t, result.Err, "exit status 3")
	require.Equal(t, "went wrong", last)
	tail := Tail(result.Log, 3)
	require.Equal(t, []string{"half a line", "went wrong", "tool: sh: exit status 3"}, tail)
	require.Nil(t, Tail(filepath.Join(store.Dir, "no such log"), 3))
}

func TestEstimate(t *testing.T) {
	minute := func(name string, n int, heavy bool, needs ...string) Stage {
		return Stage{Name: name, Expect: time.Duration(n) * time.Minute, Heavy: heavy, Needs: needs}
	}
	tests := []struct {
		name   string
		stages []Stage
		slots  int
		want   time.Duration
	}{
		{"nothing", nil, 2, 0},
		{"side by side", []Stage{minute("a", 5, true), minute("b", 2, true)}, 2, 5 * time.Minute},
		{"one after the other", []Stage{minute("a", 5, true), minute("b", 2, true)}, 1, 7 * time.Minute},
		{"a third takes the slot that is free first", []Stage{minute("a", 5, true), minute("b", 2, true), minute("c", 4, true)}, 2, 6 * time.Minute},
		{"after what it needs", []Stage{minute("b", 2, false, "a"), minute("a", 5, false)}, 2, 7 * time.Minute},
		{"what it needs is there", []Stage{minute("b", 2, false, "a")}, 2, 2 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, Estimate(tt.stages, tt.slots)) })
	}
}
