package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
)

// The node as a process of its own, which tests kill: this test's own binary, started again.

const childEnv = "WEFT_RUNTIME_TEST_CHILD"

// childConfig is what the child needs to know.
type childConfig struct {
	URL, Creds string
	Machine    nodetest.Machine
}

func child() int {
	if err := runChild(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runChild() error {
	var c childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c); err != nil {
		return err
	}
	c.Machine.Config.Log = nodetest.Log()
	machine = &c.Machine
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := mesh.Connect(ctx, mesh.Options{URL: c.URL, Name: "node-1", JetStream: accounts.NodeAPI, Credentials: func() (accounts.Credentials, error) {
		b, err := os.ReadFile(c.Creds)
		if err != nil {
			return accounts.Credentials{}, err
		}
		return accounts.ParseFile(b)
	}})
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := New(meshConfig(conn, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(c.URL, "nats://"))
	}))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// process is the child, running or dead.
type process struct {
	t   testing.TB
	m   *meshtest.Mesh
	cmd *exec.Cmd
}

// run starts the child, armed to die at a point if one is named.
func (p *process) run(point string) {
	p.t.Helper()
	creds, err := p.m.Keys.Node("node-1", "default")
	require.NoError(p.t, err)
	b, err := creds.File()
	require.NoError(p.t, err)
	path := filepath.Join(p.t.TempDir(), "node.creds")
	require.NoError(p.t, os.WriteFile(path, b, 0o600))
	c := childConfig{URL: p.m.Bus.URL(), Creds: path, Machine: *machine}
	c.Machine.Config.Log = nil
	env, err := json.Marshal(c)
	require.NoError(p.t, err)
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(env), failpoint.Env+"="+point)
	p.cmd.Stderr = os.Stderr
	require.NoError(p.t, p.cmd.Start())
}

// died waits until the child was killed by its failpoint.
func (p *process) died() {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
		require.Equal(p.t, syscall.SIGKILL, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%v", p.cmd.ProcessState)
	case <-time.After(40 * time.Second):
		_ = p.cmd.Process.Kill()
		<-done
		p.t.Fatal("the child did not reach its point")
	}
}

func (p *process) signal(sig syscall.Signal) {
	if p.cmd != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(sig)
		if sig != syscall.SIGSTOP && sig != syscall.SIGCONT {
			_ = p.cmd.Wait()
		}
	}
}

func newProcess(t testing.TB) (*world, *process) {
	t.Helper()
	machine.Need(t)
	w := newWorld(t)
	w.values = secrets.Issued{Files: []secrets.File{{Name: "token", Value: []byte("hunter2secret")}}, Scrub: []string{"hunter2secret"}}
	p := &process{t: t, m: serveWorld(t, w)}
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		requireClean(t, w)
	})
	return w, p
}

// counting writes numbers, and a secret among them, so that a gap or a repetition shows.
const counting = `i=0; while [ $i -lt 60 ]; do echo line $i; [ $((i % 10)) = 0 ] && cat /run/secrets/token; i=$((i+1)); sleep 0.01; done; echo end >&2; echo done > done.txt`

func counted() string {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "line %d\n", i)
		if i%10 == 0 {
			b.WriteString("***")
		}
	}
	return b.String()
}

func countingRun() workspace.RunSpec {
	run := script(counting)
	run.Secrets = []workspace.SecretUse{{Name: "token", As: "file"}}
	return run
}

// Killed at each point of an attempt's way, and started again: the attempt ends once, well, with whole output,
// its files merged, its leases revoked, and nothing left. That it goes on is shown by its one attempt.
func TestKilledAtEveryPoint(t *testing.T) {
	w, p := newProcess(t)
	points := []string{fpAfterClaim, fpAfterAck, fpAfterCreate, fpAfterPrepare, fpAfterIssue, fpAfterStart, fpMidOutput + ":20",
		fpAfterExit, fpAfterMerge, fpAfterRevoke, fpBeforeFinish, fpAfterFinish, fpAfterDestroy}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			p.t = t
			t.Cleanup(func() { p.signal(syscall.SIGKILL) })
			p.run(point)
			id := newTask()
			w.queued(id, "default", countingRun())
			p.died()
			p.run("")
			w.requireGoodEnd(t, id)
			p.signal(syscall.SIGTERM)
			requireClean(t, w)
		})
	}
}

// requireGoodEnd waits for the end of a counting task and checks all that has to be true then.
func (w *world) requireGoodEnd(t *testing.T, id string) {
	t.Helper()
	f := w.finished(id)
	require.Nil(t, f.Fault)
	require.Equal(t, &workspace.Exit{Code: 0, Reason: "exited"}, f.Outcome.Exit)
	require.NotNil(t, f.CommandAt)
	box := w.tasks[id].sandbox
	requireJournalEmpty(t)
	w.stored(id)
	out, eof := w.read(id, "stdout")
	require.Equal(t, counted(), out)
	require.True(t, eof)
	errs, _ := w.read(id, "stderr")
	require.Equal(t, "end\n", errs)
	o := w.overlays[box]
	require.NotNil(t, o.merged)
	require.True(t, o.merged.Keep)
	b, err := os.ReadFile(filepath.Join(o.path, "done.txt"))
	require.NoError(t, err)
	require.Equal(t, "done\n", string(b))
	require.Equal(t, "finished", w.leases[box])
}

// requireJournalEmpty waits until the child has brought everything to its end.
func requireJournalEmpty(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(filepath.Join(machine.DataDir, "attempts"))
		return err == nil && len(entries) == 0
	}, time.Minute, 10*time.Millisecond, "the journal is not empty")
}

// Killed again and again at any time while many attempts run: each ends once.
func TestKilledAtRandomTimes(t *testing.T) {
	w, p := newProcess(t)
	p.run("")
	var ids []string
	for range 8 {
		ids = append(ids, newTask())
		w.queued(ids[len(ids)-1], "default", countingRun())
	}
	for i := range 6 {
		time.Sleep(time.Duration(150+170*i) * time.Millisecond) // the moments at which it is killed, not a wait
		p.signal(syscall.SIGKILL)
		p.run("")
	}
	for _, id := range ids {
		f := w.finished(id)
		if f.Fault != nil { // killed between the word to start and the word that it did, and its sandbox with it
			require.True(t, f.Retry, "%+v", f.Fault)
			continue
		}
		w.requireOutput(t, id)
	}
	requireJournalEmpty(t)
}

func (w *world) requireOutput(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool { w.stored(id); _, eof := w.read(id, "stdout"); return eof }, time.Minute, 50*time.Millisecond)
	out, _ := w.read(id, "stdout")
	require.Equal(t, counted(), out)
}

// Stopped as a whole past its claim: what it holds is somebody else's when it wakes, and it ends that without a word.
func TestANodeThatSlept(t *testing.T) {
	w, p := newProcess(t)
	w.with(func() { w.lease = time.Second })
	p.run("")
	id := newTask()
	w.queued(id, "default", script("while :; do echo tick; sleep 0.05; done"))
	require.Eventually(t, func() bool { w.stored(id); out, _ := w.read(id, "stdout"); return out != "" }, time.Minute, 50*time.Millisecond)
	p.signal(syscall.SIGSTOP)
	box := w.tasks[id].sandbox
	w.with(func() { w.tasks[id].attempt = 2 }) // the reconciler's work
	p.signal(syscall.SIGCONT)
	requireJournalEmpty(t)
	require.NoDirExists(t, filepath.Join(machine.RunDir, "sb", box))
	w.with(func() {
		require.Nil(t, w.tasks[id].finished)
		require.Nil(t, w.overlays[box].merged)
	})
}

// The sandbox of a running attempt is gone when the node comes back: it is reported, never started twice.
func TestTheSandboxIsGoneAfterARestart(t *testing.T) {
	w, p := newProcess(t)
	p.run("")
	id := newTask()
	w.queued(id, "default", script("echo ready; sleep 1000"))
	require.Eventually(t, func() bool { w.stored(id); out, _ := w.read(id, "stdout"); return out != "" }, time.Minute, 50*time.Millisecond)
	p.signal(syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	require.NoError(t, Purge(ctx, Config{Node: "node-1", DataDir: machine.DataDir, RunDir: machine.RunDir, ImageDirs: machine.Config.ImageDirs, Init: machine.Init}))
	p.run("")
	f := w.finished(id)
	require.NotNil(t, f.Fault)
	require.True(t, f.Retry)
	requireJournalEmpty(t)
}
