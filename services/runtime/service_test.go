package runtime

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

var machine *nodetest.Machine

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(nodetest.Main(m, &machine, func() error { return goleak.Find() }))
}

var quick = timing{
	renew: 100 * time.Millisecond, margin: 500 * time.Millisecond, heartbeat: 100 * time.Millisecond, leases: 100 * time.Millisecond, sweep: 300 * time.Millisecond,
	ask: 5 * time.Second, merge: 10 * time.Second, answer: time.Minute, grace: 500 * time.Millisecond, caller: time.Minute, drain: 5 * time.Second, keepSpool: time.Hour,
	backoff: 10 * time.Millisecond, maxBackoff: 100 * time.Millisecond,
}

func (w *world) config() Config {
	return Config{
		Node: "node-1", Version: "test", DataDir: machine.DataDir, RunDir: machine.RunDir, ImageDirs: machine.Config.ImageDirs,
		Init: machine.Init, Slots: 4, MinFree: 1, Queue: w, Manager: w, Files: files{w}, Secrets: vault{w}, Output: w,
		Scrub: func(values []string) func() Scrubber { return func() Scrubber { return &masker{values: values} } },
		Log:   nodetest.Log(), timing: quick,
	}
}

// masker hides values that come whole, holding back what could be a beginning.
type masker struct {
	values []string
	held   []byte
}

func (m *masker) Append(dst, src []byte) []byte {
	all := string(m.held) + string(src)
	for _, v := range m.values {
		all = strings.ReplaceAll(all, v, "***")
	}
	keep := 0
	for _, v := range m.values {
		for n := min(len(v)-1, len(all)); n > keep; n-- {
			if strings.HasSuffix(all, v[:n]) {
				keep = n
			}
		}
	}
	m.held = []byte(all[len(all)-keep:])
	return append(dst, all[:len(all)-keep]...)
}
func (m *masker) Held() int { return len(m.held) }
func (m *masker) Flush(dst []byte) []byte {
	dst, m.held = append(dst, m.held...), nil
	return dst
}

// node runs a Service until stop is called, which is the end of its process as far as it can be had
// within one: nothing is told that it ends.
type node struct {
	s    *Service
	stop func()
}

func startNode(t testing.TB, cfg Config) *node {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	n := &node{s: s, stop: func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}}
	t.Cleanup(n.stop)
	require.Eventually(t, func() bool {
		if len(done) > 0 {
			t.Fatal(<-done)
		}
		return s.Ready() == nil
	}, 30*time.Second, time.Millisecond)
	return n
}

func start(t testing.TB) (*world, *node) {
	t.Helper()
	machine.Need(t)
	w := newWorld(t)
	n := startNode(t, w.config())
	t.Cleanup(func() { requireClean(t, w) })
	return w, n
}

// requireClean ends the node's process and shows that nothing is left of any attempt: no journal, no sandbox, no
// mount, no group, no process, no lease.
func requireClean(t testing.TB, w *world) {
	t.Helper()
	for _, dir := range []string{"attempts", "sandboxes"} {
		entries, err := os.ReadDir(filepath.Join(machine.DataDir, dir))
		require.NoError(t, err)
		require.Empty(t, entries, dir)
	}
	for _, dir := range []string{"sb", "sup", "ranges"} {
		entries, _ := os.ReadDir(filepath.Join(machine.RunDir, dir))
		require.Empty(t, entries, dir)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), machine.RunDir+"/sb/")
	require.Empty(t, w.activeLeases())
	require.EventuallyWithT(t, func(c *collect) {
		spare, _ := filepath.Glob(filepath.Join(machine.RunDir, "shim", "*")) // it serves nobody yet
		out, _ := exec.Command("pgrep", "-fa", "containerd-shim.*"+machine.RunDir).Output()
		for shim := range strings.Lines(string(out)) {
			waits := slices.ContainsFunc(spare, func(dir string) bool { return strings.Contains(shim, filepath.Base(dir)) })
			require.True(c, waits, "a shim is left: %s", shim)
		}
	}, time.Minute, 20*time.Millisecond)
}

// script runs as the attempt's command.
func script(s string) workspace.RunSpec {
	return workspace.RunSpec{Principal: "planner", Argv: []string{"/bin/sh", "-c", s}, Image: "base", Level: "standard",
		Resources: workspace.Resources{PIDs: 64, MemoryBytes: 64 << 20, OutputBytes: 1 << 20}, Files: "private"}
}

func newTask() string { return schemas.NewID() }

func TestAnAttemptFromQueueToFinish(t *testing.T) {
	w, n := start(t)
	w.values = secrets.Issued{Files: []secrets.File{{Name: "token", Value: []byte("hunter2secret")}}, Env: map[string]string{"DB_PASSWORD": "swordfish99"},
		Scrub: []string{"hunter2secret", "swordfish99"}}
	run := script(`cat head.txt; cat $WEFT_INPUT; echo; cat /run/secrets/token; echo; echo $DB_PASSWORD; echo "I am $WEFT_PRINCIPAL in $WEFT_TENANT/$WEFT_WORKSPACE at $WEFT_ATTEMPT, $GREETING"
		echo err >&2; pwd; echo $HOME; env | sort | grep -E '^(NATS|VAULT|TRACE)'; echo new > new.txt`)
	run.Env = map[string]string{"GREETING": "hello", "WEFT_TENANT": "forged"}
	run.Secrets = []workspace.SecretUse{{Name: "token", As: "file"}}
	id := newTask()
	w.submit(id, run, `{"n":1}`)
	f := w.finished(id)
	require.Nil(t, f.Fault)
	require.Equal(t, &workspace.Exit{Code: 0, Reason: "exited"}, f.Outcome.Exit)
	out, eof := w.read(id, "stdout")
	require.True(t, eof)
	box := w.tasks[id].sandbox
	require.Equal(t, "from the head\n{\"n\":1}\n***\n***\nI am planner in acme/demo at 1, hello\n/workspace\n/home/agent\n"+
		"NATS_INBOX_PREFIX=_INBOX.planner."+box+"\nNATS_URL=nats://127.0.0.1:4222\nTRACEPARENT=", out[:strings.Index(out, "TRACEPARENT=")+12])
	require.Contains(t, out, "00-0af7651916cd43dd8448eb211c80319c-")
	errs, _ := w.read(id, "stderr")
	require.Equal(t, "err\n", errs)
	require.NotNil(t, f.CommandAt)
	require.NotNil(t, f.FirstOutputAt)
	require.EqualValues(t, len(out), f.Outcome.Usage.StdoutBytes)
	require.Positive(t, f.Outcome.Usage.MaxRSSBytes)
	require.Equal(t, 2, f.Outcome.Leases)
	require.Equal(t, "snap-"+box, f.Outcome.Snapshot)
	o := w.overlays[box]
	require.True(t, o.merged.Keep)
	require.Equal(t, "finished", w.leases[box])
	b, err := os.ReadFile(filepath.Join(o.path, "new.txt"))
	require.NoError(t, err)
	require.Equal(t, "new\n", string(b))
	// The merge can take the spooled output, and the node still has it.
	require.Len(t, o.merged.Artifacts, 2)
	spooled, err := os.ReadFile(o.merged.Artifacts[0].Path)
	require.NoError(t, err)
	require.Equal(t, out, string(spooled))
	var replay string
	require.NoError(t, n.s.SpooledOutput(t.Context(), workspace.OutputRequest{Task: id, Attempt: 1, Offsets: map[string]int64{"stdout": 5}}, func(c workspace.OutputChunk) error {
		if c.Stream == "stdout" {
			replay += string(c.Data)
		}
		return nil
	}))
	require.Equal(t, out[5:], replay)
	err = n.s.SpooledOutput(t.Context(), workspace.OutputRequest{Task: newTask(), Attempt: 1}, nil)
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestEnds(t *testing.T) {
	w, n := start(t)
	for _, c := range []struct {
		name, script string
		change       func(*workspace.RunSpec)
		want         workspace.Exit
	}{
		{"its own code", "exit 3", nil, workspace.Exit{Code: 3, Reason: "exited"}},
		{"a signal", "kill -SEGV $$", nil, workspace.Exit{Code: 139, Signal: "SIGSEGV", Reason: "signal"}},
		{"not found", "", func(r *workspace.RunSpec) { r.Argv = []string{"no-such-command"} }, workspace.Exit{Code: 127, Reason: "start-failed"}},
		{"not executable", "", func(r *workspace.RunSpec) { r.Argv = []string{"/etc/passwd"} }, workspace.Exit{Code: 126, Reason: "start-failed"}},
		{"out of memory", "tail /dev/zero", nil, workspace.Exit{Code: 137, Reason: "oom"}},
		{"out of time", "trap '' TERM; sleep 100 & wait; sleep 100", func(r *workspace.RunSpec) { r.TimeoutMS = 200 }, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := script(c.script)
			if c.change != nil {
				c.change(&run)
			}
			id := newTask()
			w.submit(id, run, "")
			f := w.finished(id)
			require.Nil(t, f.Fault)
			if c.want.Reason == "oom" {
				f.Outcome.Exit.Signal = "" // of the shell or of what it ran
			}
			require.Equal(t, &c.want, f.Outcome.Exit)
			require.False(t, w.overlays[w.tasks[id].sandbox].merged.Keep, "a bad end changes nothing in the head")
			if c.want.Reason == "start-failed" {
				said, _ := w.read(id, "log")
				require.NotEmpty(t, said)
			}
		})
	}
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestFaults(t *testing.T) {
	w, n := start(t)
	for _, c := range []struct {
		name  string
		do    func(run *workspace.RunSpec)
		code  fault.Code
		retry bool
	}{
		{"an image that is not there", func(r *workspace.RunSpec) { r.Image = "no-such-template" }, fault.Unavailable, true},
		{"an image of a registry that the node may not ask", func(r *workspace.RunSpec) { r.Image = "example.com/image:1" }, fault.Denied, false},
		{"a path on the node as the image", func(r *workspace.RunSpec) { r.Image = "/etc/passwd" }, fault.Denied, false},
		{"a level that this node has not", func(r *workspace.RunSpec) { r.Level = "highest" }, fault.Unavailable, true},
		{"too little memory", func(r *workspace.RunSpec) { r.Resources.MemoryBytes = 1000 }, fault.Invalid, false},
		{"a grant that is missing", func(r *workspace.RunSpec) {
			r.Secrets = []workspace.SecretUse{{Name: "x", As: "file"}}
			w.denied["issue"] = fault.New(fault.Denied, "no grant")
		}, fault.Denied, false},
		{"a quota that is used up", func(*workspace.RunSpec) { w.denied["prepare"] = fault.New(fault.Exhausted, "the workspace is full") }, fault.Exhausted, false},
		{"files that can't be merged", func(*workspace.RunSpec) { w.denied["merge"] = fault.New(fault.Exhausted, "the workspace is full") }, fault.Exhausted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := script("true")
			w.with(func() { c.do(&run) })
			defer w.with(func() { clear(w.denied) })
			id := newTask()
			w.submit(id, run, "")
			f := w.finished(id)
			require.NotNil(t, f.Fault, "%+v", f)
			require.Equal(t, string(c.code), f.Fault.Code, f.Fault.Message)
			require.Equal(t, c.retry, f.Retry)
			require.Nil(t, f.Outcome.Exit)
		})
	}
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestOutputIsCappedAndPublishedAgain(t *testing.T) {
	w, n := start(t)
	w.with(func() { w.failOut = 5 })
	id := newTask()
	w.submit(id, script("head -c 3000000 /dev/zero | tr '\\0' x; echo the end >&2"), "")
	f := w.finished(id)
	require.Equal(t, 0, f.Outcome.Exit.Code)
	require.True(t, f.Outcome.Usage.Truncated)
	out, eof := w.read(id, "stdout")
	require.True(t, eof)
	errs, _ := w.read(id, "stderr")
	require.Equal(t, 1<<20, len(out)+len(errs), "the cap is of both together")
	said, _ := w.read(id, "log")
	require.Contains(t, said, "truncated")
	for _, c := range w.chunks[id] {
		require.LessOrEqual(t, len(c.Data), schemas.MaxFrame)
	}
	require.EqualValues(t, spool.Stdout, 0)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestCancel(t *testing.T) {
	w, n := start(t)
	polite, stubborn := newTask(), newTask()
	w.submit(polite, script("trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done"), "")
	w.submit(stubborn, script("trap '' TERM; (trap '' TERM; setsid sleep 1000) & echo ready; while :; do sleep 0.05; done"), "")
	for _, id := range []string{polite, stubborn} {
		require.Eventually(t, func() bool { out, _ := w.read(id, "stdout"); return out == "ready\n" }, time.Minute, 5*time.Millisecond)
	}
	w.with(func() {
		for _, id := range []string{polite, stubborn} {
			w.tasks[id].verdict, w.tasks[id].reason = workspace.VerdictStop, "cancelled"
		}
	})
	f := w.finished(polite)
	require.Equal(t, &workspace.Exit{Code: 9, Reason: "cancelled"}, f.Outcome.Exit)
	out, _ := w.read(polite, "stdout")
	require.Equal(t, "ready\nbye\n", out)
	f = w.finished(stubborn)
	require.Equal(t, &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "cancelled"}, f.Outcome.Exit)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

// A claim that can't be renewed: the sandbox is frozen before the claim runs out, and thawed when it is
// still ours, or ended without a word when it is not.
func TestFreezeAndThaw(t *testing.T) {
	w, n := start(t)
	w.with(func() { w.lease = time.Second })
	ours, lost := newTask(), newTask()
	for _, id := range []string{ours, lost} {
		w.submit(id, script("while :; do echo tick; sleep 0.02; done"), "")
		require.Eventually(t, func() bool { out, _ := w.read(id, "stdout"); return len(out) > 10 }, time.Minute, 5*time.Millisecond)
	}
	w.with(func() { w.down = true })
	frozen := func(id string) bool {
		b, ok := n.s.node.Get(w.tasks[id].sandbox)
		if !ok {
			return false
		}
		p, err := b.Paused()
		return err == nil && p
	}
	require.Eventually(t, func() bool { return frozen(ours) && frozen(lost) }, time.Minute, 5*time.Millisecond)
	require.Less(t, time.Until(n.s.holding(workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: ours, Attempt: 1}).deadline), quick.margin)
	out, _ := w.read(ours, "stdout")
	w.with(func() { w.down, w.tasks[lost].attempt = false, 2 })
	require.Eventually(t, func() bool { more, _ := w.read(ours, "stdout"); return len(more) > len(out) }, time.Minute, 5*time.Millisecond, "it goes on")
	box := w.tasks[lost].sandbox
	require.Eventually(t, func() bool { _, ok := n.s.node.Get(box); return !ok }, time.Minute, 5*time.Millisecond, "the lost one is gone")
	w.with(func() {
		require.Nil(t, w.tasks[lost].finished)
		require.Nil(t, w.overlays[box].merged)
		require.True(t, w.overlays[box].gone)
		w.tasks[ours].verdict = workspace.VerdictStop
	})
	require.NotNil(t, w.finished(ours).Outcome.Exit)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

// The sandbox is killed under the command.
func TestTheSandboxDies(t *testing.T) {
	w, n := start(t)
	id := newTask()
	w.submit(id, script("echo ready; sleep 1000"), "")
	require.Eventually(t, func() bool { out, _ := w.read(id, "stdout"); return out == "ready\n" }, time.Minute, 5*time.Millisecond)
	b, ok := n.s.node.Get(w.tasks[id].sandbox)
	require.True(t, ok)
	require.NoError(t, b.Stop(t.Context()))
	f := w.finished(id)
	require.Equal(t, "unavailable", f.Fault.Code)
	require.True(t, f.Retry)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestANodePullsOnlyWhatItHasRoomFor(t *testing.T) {
	machine.Need(t)
	w := newWorld(t)
	cfg := w.config()
	cfg.Slots = 2
	n := startNode(t, cfg)
	t.Cleanup(func() { requireClean(t, w) })
	var ids []string
	for range 5 {
		ids = append(ids, newTask())
		run := script("sleep 0.3")
		run.Files = "none"
		w.submit(ids[len(ids)-1], run, "")
	}
	most := 0
	require.Eventually(t, func() bool {
		most = max(most, n.s.status().Used)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range ids {
			if w.tasks[id].finished == nil {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, 2, most)
	n.s.Drain(t.Context(), false)
	last := newTask()
	w.submit(last, script("true"), "")
	require.True(t, n.s.status().Draining)
	require.Equal(t, 0, n.s.free())
	n.s.Drain(t.Context(), true)
	require.Equal(t, 0, w.finished(last).Outcome.Exit.Code)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	machine.Need(t)
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*Config)
		code   fault.Code
		says   string
	}{
		"no name":       {func(c *Config) { c.Node = "" }, fault.Invalid, "node"},
		"reserved name": {func(c *Config) { c.Node = "runtime" }, fault.Invalid, "reserved"},
		"no directory":  {func(c *Config) { c.DataDir = "relative" }, fault.Invalid, "absolute"},
		"no runc":       {func(*Config) { t.Setenv("WEFT_RUNC_BIN", "/no/such/runc") }, fault.Unavailable, "runc"},
	} {
		cfg := w.config()
		c.change(&cfg)
		_, err := New(cfg)
		require.True(t, fault.Is(err, c.code), "%s: %v", name, err)
		require.Contains(t, err.Error(), c.says, name)
	}
}

// BenchmarkAttempt is a command that does nothing, from the queue to the finish, with services that answer at once.
func BenchmarkAttempt(b *testing.B) {
	w, n := start(b)
	require.NoError(b, n.s.node.Image(b.Context(), "base"))
	var to []time.Duration
	for b.Loop() {
		id, at := newTask(), time.Now()
		run := script("true")
		w.submit(id, run, "")
		for done := false; !done; time.Sleep(200 * time.Microsecond) {
			w.with(func() { done = w.tasks[id].finished != nil })
		}
		to = append(to, time.Since(at))
	}
	slices.Sort(to)
	b.ReportMetric(float64(to[len(to)/2].Microseconds())/1000, "to-finish-ms")
	b.ReportMetric(float64(to[0].Microseconds())/1000, "min-ms")
	require.Eventually(b, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}
