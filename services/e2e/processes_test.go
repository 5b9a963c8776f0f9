package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestProcesses: what runs in the background of a sandbox, who follows it, and how it is reached, also while weftd dies.
func TestProcesses(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	s, err := c.CreateSandbox(ctx(t, 60*time.Second), workspace.SandboxCreate{Template: "python"})
	require.NoError(t, err)
	t.Run("on the command line", func(t *testing.T) { testProcessCLI(t, w, s.ID) })
	t.Run("two hundred", func(t *testing.T) { testTwoHundred(t, c, s.ID) })
	t.Run("ports", func(t *testing.T) { testPortForward(t, w, c, s.ID) })
	t.Run("much output costs little memory", func(t *testing.T) { testMuchOutput(t, w, c, s.ID) })
	t.Run("weftd is killed", func(t *testing.T) { testProcessesOutliveWeftd(t, w, c, s.ID) })
}

// worker says what it gets.
const worker = `
import signal, sys
signal.signal(signal.SIGHUP, lambda *a: print("hup"))
print("up")
for line in sys.stdin:
    print("got", line, end="")
    if line == "end\n": sys.exit(7)
`

func testProcessCLI(t *testing.T, w *world, id string) {
	p := strings.TrimSpace(w.must("sandbox", "exec", "-d", "-i", "--name", "worker", "--label", "role=test", id, "--",
		"python3", "-u", "-c", worker))
	ps := items[runtime.Process](t, w.must("sandbox", "ps", id, "--json"))
	require.Len(t, ps, 1)
	require.Equal(t, []string{p, "worker", "test"}, []string{ps[0].ID, ps[0].Name, ps[0].Labels["role"]})
	require.Contains(t, w.must("sandbox", "ps", id), "worker")
	logs := func() string { return w.must("sandbox", "logs", id, "worker") }
	require.Eventually(t, func() bool { return strings.Contains(logs(), "up\n") }, 30*time.Second, 50*time.Millisecond)
	w.must("sandbox", "signal", "-s", "HUP", "--target", "process", id, "worker")
	require.Eventually(t, func() bool { return strings.Contains(logs(), "hup\n") }, 30*time.Second, 50*time.Millisecond)
	_, stderr, code := w.weft("", "sandbox", "exec", "-d", "--name", "worker", id, "--", "true")
	require.Equal(t, 5, code, stderr)
	stdout, _, code := w.weft("end\n", "sandbox", "attach", "-i", id, "worker")
	require.Equal(t, 7, code)
	require.Contains(t, stdout, "got end\n")
	require.Equal(t, "7\n", w.must("sandbox", "wait", id, "worker"))
	require.Empty(t, items[runtime.Process](t, w.must("sandbox", "ps", id, "--json")))
	require.Contains(t, w.must("sandbox", "ps", "-a", id), "exited 7")
	w.must("sandbox", "forget", id, "worker")
	_, _, code = w.weft("", "sandbox", "logs", id, "worker")
	require.Equal(t, 3, code)
	require.Equal(t, "2000\n77\n", w.must("sandbox", "exec", "--user", "2000", "--ulimit", "nofile=77", id, "--", "/bin/sh", "-c", "id -u; ulimit -n"))
	sleeper := strings.TrimSpace(w.must("sandbox", "exec", "-d", id, "--", "sleep", "1000"))
	w.must("sandbox", "stop", "--grace", "0", id, sleeper)
	require.Equal(t, "137\n", w.must("sandbox", "wait", id, sleeper))
	w.must("sandbox", "forget", id, sleeper)
}

func testTwoHundred(t *testing.T, c *client.Client, id string) {
	var starts sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range 200 {
		starts.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if _, err := c.StartProcess(ctx(t, 60*time.Second), id, runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"sleep", "1000"}}}); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	ps, err := c.Processes(ctx(t, 30*time.Second), id, false)
	require.NoError(t, err)
	require.Equal(t, 200, len(ps))
	_, err = c.Execute(ctx(t, 60*time.Second), id, runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", "kill -9 -1"}}, client.Streams{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ps, err := c.Processes(ctx(t, 30*time.Second), id, false)
		return err == nil && len(ps) == 0
	}, 60*time.Second, 50*time.Millisecond)
}

// serveInside answers HTTP on a port, and says hello on a unix socket.
const serveInside = `
import http.server, socket, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        b = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(b.upper())
    def log_message(self, *a): pass
u = socket.socket(socket.AF_UNIX); u.bind("/tmp/hello"); u.listen()
def hello():
    while True:
        c, _ = u.accept(); c.sendall(b"hello " + c.recv(100)); c.close()
threading.Thread(target=hello, daemon=True).start()
s = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H)
print("ready", flush=True)
s.serve_forever()
`

func testPortForward(t *testing.T, w *world, c *client.Client, id string) {
	p, err := c.StartProcess(ctx(t, 30*time.Second), id, runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"python3", "-c", serveInside}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := c.Process(ctx(t, 10*time.Second), id, p.ID)
		return err == nil && now.Written.Stdout > 0
	}, 60*time.Second, 50*time.Millisecond)
	cmd := exec.Command(filepath.Join(binDir, "weft"), "sandbox", "port-forward", id, "0:8000", "/tmp/hello", "0:8001")
	cmd.Env = append(os.Environ(), "WEFT_CONTEXTS="+filepath.Join(w.dir, "contexts.json"))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var local []string
	for lines := bufio.NewScanner(out); len(local) < 3 && lines.Scan(); {
		at, _, _ := strings.Cut(lines.Text(), " -> ")
		local = append(local, at)
	}
	require.Len(t, local, 3)
	body := strings.Repeat("abc", 200_000)
	var many sync.WaitGroup // connections at once
	for range 8 {
		many.Go(func() {
			r, err := http.Post("http://"+local[0], "text/plain", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			got, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err != nil || string(got) != strings.ToUpper(body) {
				t.Errorf("%d bytes came back: %v", len(got), err)
			}
		})
	}
	many.Wait()
	conn, err := net.Dial("tcp", local[1])
	require.NoError(t, err)
	_, _ = conn.Write([]byte("socket"))
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "hello socket", string(got))
	_ = conn.Close()
	conn, err = net.Dial("tcp", local[2]) // nobody listens there
	require.NoError(t, err)
	_, _ = io.ReadAll(conn)
	_ = conn.Close()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	require.Equal(t, 0, cmd.ProcessState.ExitCode(), said.String())
	require.Contains(t, said.String(), "connection refused")
	_, err = c.DialPort(ctx(t, 10*time.Second), id, "8001")
	require.Equal(t, fault.Unavailable, fault.CodeOf(err))
	_, err = c.StopProcess(ctx(t, 30*time.Second), id, p.ID, 0)
	require.NoError(t, err)
}

// testMuchOutput: a process that writes far more than anybody keeps, read and unread.
func testMuchOutput(t *testing.T, w *world, c *client.Client, id string) {
	bytesOut := int64(300 << 20)
	if os.Getenv("WEFT_SOAK") == "1" {
		bytesOut = 10 << 30
	}
	limit := 30 * time.Minute
	argv := []string{"head", "-c", strconv.FormatInt(bytesOut, 10), "/dev/zero"}
	count := &counter{}
	_, err := c.Execute(ctx(t, limit), id, runtime.ExecRequest{Argv: argv}, client.Streams{Stdout: count})
	require.NoError(t, err)
	require.Equal(t, bytesOut, count.n)
	p, err := c.StartProcess(ctx(t, 30*time.Second), id, runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: argv}, Output: runtime.OutputRing})
	require.NoError(t, err)
	end, err := c.WaitProcess(ctx(t, limit), id, p.ID)
	require.NoError(t, err)
	require.Equal(t, bytesOut, end.Written.Stdout)
	require.LessOrEqual(t, end.Written.Stdout-end.Oldest.Stdout, int64(runtime.DefaultBuffer))
	most := 400 << 20
	if raceDetector {
		most *= 5
	}
	require.Less(t, rss(t, w.cmd.Process.Pid), most, "weftd")
	require.Less(t, rss(t, process1(t, id)), 64<<20, "weft-init")
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) { c.n += int64(len(b)); return len(b), nil }

// rss is a process's largest resident memory so far, in bytes.
func rss(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for _, line := range strings.Split(string(status), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatalf("no VmHWM of %d", pid)
	return 0
}

// process1 is the host's id of a sandbox's process 1.
func process1(t *testing.T, sandbox string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range all {
		b, _ := os.ReadFile(path)
		if args := strings.Split(string(b), "\x00"); len(args) > 1 && strings.HasSuffix(args[0], "/init") && args[1] == "-sandbox="+sandbox {
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			require.NoError(t, err)
			return pid
		}
	}
	t.Fatalf("no process 1 of sandbox %s", sandbox)
	return 0
}

// writeLines writes numbered lines, 8 bytes each: the first half when /tmp/ready is there, the second when /tmp/go is.
const writeLines = `
import os, sys, time
n = int(sys.argv[1])
def part(a, b):
    for i in range(a, b, 1000):
        os.write(1, b"".join(b"%07d\n" % k for k in range(i, i + 1000)))
while not os.path.exists("/tmp/ready"): time.sleep(0.05)
part(0, n // 2)
while not os.path.exists("/tmp/go"): time.sleep(0.05)
part(n // 2, n)
os.write(2, sys.stdin.buffer.read() if len(sys.argv) > 2 else b"done\n")
sys.exit(9)
`

// attachByCLI follows a process of its own by `weft sandbox attach`, which sees every line once, also while weftd dies. The
// process begins when it reads what attach passes on, and says at the end what it reads then. done waits for that.
func attachByCLI(t *testing.T, w *world, c *client.Client, id string, n int, half chan struct{}) (done func()) {
	t.Helper()
	script := strings.Replace(writeLines, `while not os.path.exists("/tmp/ready"): time.sleep(0.05)`, "sys.stdin.readline()", 1)
	script = strings.Replace(script, "sys.stdin.buffer.read()", "sys.stdin.readline().encode()", 1)
	p, err := c.StartProcess(ctx(t, 30*time.Second), id, runtime.ProcessStart{
		ExecRequest: runtime.ExecRequest{Argv: []string{"python3", "-c", script, fmt.Sprint(n), "stdin"}, Stdin: true}, Buffer: 256 << 10})
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx(t, 4*time.Minute), filepath.Join(binDir, "weft"), "sandbox", "attach", "-i", id, p.ID)
	cmd.Env = append(os.Environ(), "WEFT_CONTEXTS="+filepath.Join(w.dir, "contexts.json"))
	v, errs := &verifier{t: t, half: n / 4, told: half}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = v, errs
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(stdin, "begin\n")
	require.NoError(t, err)
	return func() {
		_, err := io.WriteString(stdin, "after\n")
		require.NoError(t, err)
		_ = cmd.Wait()
		require.Equal(t, 9, cmd.ProcessState.ExitCode(), errs.String())
		require.Equal(t, n, v.n, "lines")
		require.Contains(t, errs.String(), "after\n", "stdin is passed on, too")
		require.NotContains(t, errs.String(), "missing here")
	}
}

// testProcessesOutliveWeftd kills weftd in the middle of output: two who are attached, one who is by the command line, and
// one who waits for a command in the foreground, see every byte once, and what is passed on arrives once.
func testProcessesOutliveWeftd(t *testing.T, w *world, c *client.Client, id string) {
	const n = 1_000_000
	within, stop := context.WithTimeout(t.Context(), 4*time.Minute)
	defer stop()
	attached := make(chan struct{}, 3)
	isThere := func(runtime.Process) { attached <- struct{}{} }
	touch := func(path string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, err := c.Execute(within, id, runtime.ExecRequest{Argv: []string{"touch", path}}, client.Streams{})
			return err == nil
		}, 2*time.Minute, 100*time.Millisecond)
	}
	p, err := c.StartProcess(within, id, runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"python3", "-c", writeLines, fmt.Sprint(n)}}, Buffer: 256 << 10})
	require.NoError(t, err)
	half, restarted := make(chan struct{}, 4), make(chan struct{})
	var all sync.WaitGroup
	byCLI := attachByCLI(t, w, c, id, n, half)
	for range 2 {
		all.Go(func() {
			v := &verifier{t: t, half: n / 4, told: half}
			end, err := c.Attach(within, id, p.ID, client.AttachOptions{At: &runtime.Offsets{}}, client.Streams{Started: isThere, Stdout: v, Gap: func(g runtime.Gap) { t.Errorf("a gap: %+v", g) }})
			if err != nil || end.Exit == nil || end.Exit.Code != 9 || v.n != n {
				t.Errorf("attached: %d of %d lines, %+v, %v", v.n, n, end.Exit, err)
			}
		})
	}
	all.Go(func() {
		v := &verifier{t: t, half: n / 4, told: half}
		stdin, feed := io.Pipe()
		errs := &bytes.Buffer{}
		go func() {
			_, _ = io.WriteString(feed, strings.Repeat("before ", 1000))
			<-restarted
			_, _ = io.WriteString(feed, strings.Repeat("after ", 1000))
			_ = feed.Close()
		}()
		res, err := c.Execute(within, id, runtime.ExecRequest{Argv: []string{"python3", "-c", writeLines, fmt.Sprint(n), "stdin"}}, client.Streams{Started: isThere, Stdin: stdin, Stdout: v, Stderr: errs})
		if err != nil || res.Exit.Code != 9 || v.n != n {
			t.Errorf("in the foreground: %d of %d lines, %+v, %v", v.n, n, res.Exit, err)
		}
		if want := strings.Repeat("before ", 1000) + strings.Repeat("after ", 1000); errs.String() != want {
			t.Errorf("stdin of %d bytes, not %d: %d before, %d after", errs.Len(), len(want), strings.Count(errs.String(), "before"), strings.Count(errs.String(), "after"))
		}
	})
	await := func(events <-chan struct{}, n int) {
		for range n {
			select {
			case <-events:
			case <-within.Done():
				all.Wait()
				t.Fatal("nothing came in time")
			}
		}
	}
	await(attached, 3)
	touch("/tmp/ready")
	await(half, 4)
	w.kill()
	w.start()
	close(restarted)
	touch("/tmp/go")
	all.Wait()
	byCLI()
	end, err := c.WaitProcess(within, id, p.ID)
	require.NoError(t, err)
	require.Equal(t, 9, end.Exit.Code)
}

// verifier expects the lines in order, each once.
type verifier struct {
	t    testing.TB
	n    int
	half int
	told chan struct{}
	rest []byte
}

func (v *verifier) Write(b []byte) (int, error) {
	v.rest = append(v.rest, b...)
	for len(v.rest) >= 8 {
		if want := fmt.Sprintf("%07d\n", v.n); string(v.rest[:8]) != want {
			return 0, fmt.Errorf("line %q, not %q", v.rest[:8], want)
		}
		v.rest = v.rest[8:]
		if v.n++; v.n == v.half {
			v.told <- struct{}{}
		}
	}
	return len(b), nil
}
