package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas/workspace"
)

// binDir has the programs under test, built once.
var binDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if binDir, err = os.MkdirTemp("", "weft-e2e-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binDir) }()
	for _, p := range []string{"weft", "weftd", "weft-init"} {
		cmd := exec.Command("go", "build", "-p", "2", "-o", filepath.Join(binDir, p), "github.com/weftmesh/weft/services/cmd/"+p)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if raceDetector && p == "weftd" { // the others run in sandboxes, where there is no C library
			cmd = exec.Command("go", "build", "-race", "-p", "2", "-o", filepath.Join(binDir, p), "github.com/weftmesh/weft/services/cmd/"+p)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", p, err, out)
			return 1
		}
	}
	return m.Run()
}

// requireComponents fails, or skips where the environment does not demand it, if a component is missing.
func requireComponents(t testing.TB) {
	t.Helper()
	missing := []error{needs.RootMissing()}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "runc", "runsc", "containerd-shim-runsc-v1", "bao"} {
		_, err := toolchain.Find(p)
		missing = append(missing, err)
	}
	for _, i := range []string{"base", "python"} {
		_, err := toolchain.Image(i)
		missing = append(missing, err)
	}
	needs.All(t, missing...)
}

// world is one mesh on a data directory of its own.
type world struct {
	t      testing.TB
	dir    string
	env    []string
	args   []string
	listen string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	log  bytes.Buffer
}

// boot starts a mesh of one process and stops all of it when the test ends.
func boot(t testing.TB, args ...string) *world {
	t.Helper()
	requireComponents(t)
	dir, err := os.MkdirTemp("", "weft-e2e-")
	require.NoError(t, err)
	w := &world{t: t, dir: dir, args: args}
	t.Cleanup(w.end)
	w.start()
	return w
}

// start runs weftd and waits until it says that it is ready.
func (w *world) start(env ...string) {
	w.t.Helper()
	w.launch(env...)
	w.waitReady(60 * time.Second)
}

// launch runs weftd without waiting.
func (w *world) launch(env ...string) {
	w.t.Helper()
	_ = os.Remove(filepath.Join(w.dir, "weftd.json"))
	listen := w.listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	cmd := exec.Command(filepath.Join(binDir, "weftd"), append([]string{"-data-dir", w.dir, "-listen", listen, "-http", "127.0.0.1:0", "-node", "n1", "-log-level", "debug"}, w.args...)...)
	cmd.Env = append(append(os.Environ(), w.env...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &lockedWriter{w: w}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(w.t, cmd.Start())
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	w.mu.Lock()
	w.cmd, w.done = cmd, done
	w.mu.Unlock()
}

// lockedWriter collects the log.
type lockedWriter struct{ w *world }

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.log.Write(b)
}

func (w *world) logs() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *world) waitReady(within time.Duration) {
	w.t.Helper()
	limit := time.Now().Add(within)
	for {
		if d, err := client.ReadDaemon(w.dir); err == nil && d.PID == w.cmd.Process.Pid {
			w.listen = strings.TrimPrefix(d.URL, "nats://") // a restart keeps the address that clients know
			return
		}
		select {
		case <-w.done:
			w.t.Fatalf("weftd ended before it was ready:\n%s", tail(w.logs()))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(limit) {
			w.t.Fatalf("weftd was not ready within %s:\n%s", within, tail(w.logs()))
		}
	}
}

// kill ends weftd with SIGKILL, as a crash does.
func (w *world) kill() {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Kill())
	<-w.done
}

// exited waits until weftd has ended by itself: at a failpoint.
func (w *world) exited(within time.Duration) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(within):
		w.t.Fatalf("weftd did not reach the point where it was to be killed within %s:\n%s", within, tail(w.logs()))
	}
}

// end stops weftd and everything that survives it, and removes the data directory.
func (w *world) end() {
	if w.cmd != nil {
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-w.done:
		case <-time.After(20 * time.Second):
			_ = w.cmd.Process.Kill()
			<-w.done
			w.t.Errorf("weftd did not stop within 20 s:\n%s", tail(w.logs()))
		}
	}
	w.noRace()
	if w.t.Failed() {
		w.t.Logf("weftd's log:\n%s", tail(w.logs()))
	}
	out, err := exec.Command(filepath.Join(binDir, "weftd"), "-data-dir", w.dir, "-purge").CombinedOutput()
	if err != nil {
		w.t.Errorf("purge: %v\n%s", err, out)
	}
	if left := leftovers(w.t, w.dir); len(left) > 0 {
		w.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		return // to look at
	}
	for _, dir := range []string{w.dir, runDir(w.dir)} {
		if err := os.RemoveAll(dir); err != nil {
			w.t.Error(err)
		}
	}
}

// noRace fails the test where the race detector found something in weftd.
func (w *world) noRace() {
	if _, race, found := strings.Cut(w.logs(), "WARNING: DATA RACE"); found {
		w.t.Errorf("a data race in weftd:%s", race[:min(len(race), 6000)])
	}
}

func tail(s string) string {
	const most = 12000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// as connects as a user of the first tenant.
func (w *world) as(principal string) *client.Client {
	w.t.Helper()
	return w.in("default", principal)
}

func (w *world) in(ws, principal string) *client.Client {
	w.t.Helper()
	return w.dial("default", ws, principal)
}

func (w *world) dial(tenant, ws, principal string) *client.Client {
	w.t.Helper()
	c, err := client.Dial(ctx(w.t, 20*time.Second), client.Context{DataDir: w.dir, Tenant: tenant, Workspace: ws, Principal: principal})
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// ctx ends with the test, or after d.
func ctx(t testing.TB, d time.Duration) context.Context {
	c, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return c
}

// weft runs the CLI as alice of the first tenant and gives what it printed and its exit code.
func (w *world) weft(stdin string, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	contexts := filepath.Join(w.dir, "contexts.json")
	if _, err := os.Stat(contexts); err != nil {
		_, stderr, code := w.cli("", "context", "add", "local", "--data-dir", w.dir, "--tenant", "default", "--principal", "alice", "--in", "default")
		require.Zero(w.t, code, stderr)
	}
	return w.cli(stdin, args...)
}

func (w *world) cli(stdin string, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(ctx(w.t, 90*time.Second), filepath.Join(binDir, "weft"), args...)
	cmd.Env = append(os.Environ(), "WEFT_CONTEXTS="+filepath.Join(w.dir, "contexts.json"))
	cmd.Stdin = strings.NewReader(stdin)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		require.NoError(w.t, err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// must is weft for what has to go well; it gives stdout.
func (w *world) must(args ...string) string {
	w.t.Helper()
	stdout, stderr, code := w.weft("", args...)
	require.Zero(w.t, code, "weft %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// items reads the list that a command prints with --json.
func items[T any](t testing.TB, stdout string) []T {
	t.Helper()
	var v struct {
		Schema string `json:"schema"`
		Items  []T    `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &v), stdout)
	require.Equal(t, "weft.cli.v1", v.Schema)
	return v.Items
}

// item reads the one thing that a command prints with --json.
func item[T any](t testing.TB, stdout string) T {
	t.Helper()
	var v struct {
		Schema string `json:"schema"`
		Item   T      `json:"item"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &v), stdout)
	require.Equal(t, "weft.cli.v1", v.Schema)
	return v.Item
}

// ready asks /readyz.
func (w *world) ready() (map[string]string, bool) {
	d, err := client.ReadDaemon(w.dir)
	require.NoError(w.t, err)
	r, err := http.Get("http://" + d.HTTP + "/readyz")
	if err != nil {
		return map[string]string{"http": err.Error()}, false
	}
	defer func() { _ = r.Body.Close() }()
	var v struct{ Failing map[string]string }
	_ = json.NewDecoder(r.Body).Decode(&v)
	return v.Failing, r.StatusCode == http.StatusOK
}

// command is a submission that runs argv in a template.
func command(argv ...string) workspace.Submission {
	return workspace.Submission{Template: "base", Command: argv, TimeoutMS: 60_000}
}

func shell(script string) workspace.Submission { return command("/bin/sh", "-c", script) }

// finish submits and waits for the end.
func finish(t testing.TB, c *client.Client, s workspace.Submission) workspace.Task {
	t.Helper()
	sub, err := c.Submit(ctx(t, 10*time.Second), s, "")
	require.NoError(t, err)
	return ended(t, c, sub.Task)
}

// ended waits for the end of a task that was submitted a moment ago.
func ended(t testing.TB, c *client.Client, id string) workspace.Task {
	t.Helper()
	task, err := c.Follow(ctx(t, 90*time.Second), id, client.Following{Submitted: true})
	require.NoError(t, err)
	return task
}

// output is everything that the task's last attempt wrote to a stream.
func output(t testing.TB, c *client.Client, task, stream string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, c.Output(ctx(t, 30*time.Second), workspace.OutputRequest{Task: task}, func(o workspace.OutputChunk) error {
		if o.Stream == stream {
			require.EqualValues(t, b.Len(), o.Offset, "a gap or a repeat in the output")
			b.Write(o.Data)
		}
		return nil
	}))
	return b.String()
}
