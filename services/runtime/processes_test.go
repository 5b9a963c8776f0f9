package runtime

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// bench is one sandbox and a client of it.
type bench struct {
	t testing.TB
	c *mesh.Conn
	b workspace.Sandbox
}

// in is the same for a part of the test.
func (x bench) in(t testing.TB) bench {
	x.t = t
	return x
}

// request is an operation with one answer.
func request[Rep any](x bench, op string, req any) (Rep, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	return mesh.Request[Rep](ctx, x.c, sbx(x.t, x.b, op), req)
}

func (x bench) start(req runtime.ProcessStart) runtime.Process {
	x.t.Helper()
	p, err := request[runtime.Process](x, runtime.OpProcessStart, req)
	require.NoError(x.t, err)
	return p
}

func (x bench) wait(ref string) runtime.Process {
	x.t.Helper()
	for {
		p, err := request[runtime.Process](x, runtime.OpProcessWait, runtime.ProcessWait{Process: ref, TimeoutMS: 5000})
		require.NoError(x.t, err)
		if !p.Running {
			return p
		}
	}
}

// refused asks for what must be refused with code.
func (x bench) refused(code fault.Code, op string, req any) {
	x.t.Helper()
	_, err := request[workspace.Empty](x, op, req)
	require.Equal(x.t, code, fault.CodeOf(err), "%s %+v: %v", op, req, err)
}

// followed is what an attached client saw.
type followed struct {
	runtime.Process
	at       runtime.Attached
	out, err string
	gaps     []runtime.Gap
}

// attach follows to the end.
func (x bench) attach(req runtime.AttachRequest, stdin string) (f followed, err error) {
	x.t.Helper()
	ctx := meshtest.Context(x.t)
	s, err := stream.Open(ctx, x.c, sbx(x.t, x.b, runtime.OpAttach), req)
	if err != nil {
		return f, err
	}
	defer s.Close()
	var copies sync.WaitGroup
	var out, errs bytes.Buffer
	copies.Go(func() { _, _ = io.Copy(&out, s.Channel(stream.Stdout)) })
	copies.Go(func() { _, _ = io.Copy(&errs, s.Channel(stream.Stderr)) })
	copies.Go(func() {
		for {
			m, err := s.Receive(ctx)
			if err != nil {
				return
			}
			switch m.Type {
			case stream.Started:
				f.at, _ = mesh.Decode[runtime.Attached](m.Value)
			case stream.Gap:
				g, _ := mesh.Decode[runtime.Gap](m.Value)
				f.gaps = append(f.gaps, g)
			}
		}
	})
	if req.Stdin {
		_, _ = s.Channel(stream.Stdin).Write([]byte(stdin))
		_ = s.Channel(stream.Stdin).CloseWrite()
	}
	copies.Wait()
	f.out, f.err = out.String(), errs.String()
	return f, s.Result(ctx, &f.Process)
}

func run(script string) runtime.ProcessStart { return runtime.ProcessStart{ExecRequest: shell(script)} }

func TestProcesses(t *testing.T) {
	w, m, _ := onMesh(t)
	x := bench{t, m.User("acme", "alice"), w.createBox(t, func(b *workspace.Sandbox) { b.Run.Image, b.Run.Resources = "python", workspace.Resources{} })}
	t.Run("in the background", func(t *testing.T) { testBackground(x.in(t)) })
	t.Run("what is refused", func(t *testing.T) { testRefusedProcesses(x.in(t)) })
	t.Run("users, limits, signals", func(t *testing.T) { testProcessOptions(x.in(t)) })
	t.Run("attach", func(t *testing.T) { testAttach(x.in(t)) })
	t.Run("a client that does not read", func(t *testing.T) { testStalledClient(x.in(t)) })
	t.Run("a terminal", func(t *testing.T) { testBackgroundTerminal(x.in(t)) })
	t.Run("two hundred at once", func(t *testing.T) { testTwoHundred(x.in(t)) })
	t.Run("ports", func(t *testing.T) { testPorts(x.in(t)) })
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: x.b.ID}))
	x.refused(fault.Unavailable, runtime.OpProcessList, runtime.ProcessList{})
}

func testBackground(x bench) {
	t := x.t
	req := run("echo to $GREETING; echo bad >&2; exec sleep 1000")
	req.ID, req.Name, req.Labels = schemas.NewID(), "server", map[string]string{"role": "web"}
	p := x.start(req)
	require.Equal(t, []any{req.ID, "server", "web", true, uint32(1000), false}, []any{p.ID, p.Name, p.Labels["role"], p.Running, p.UID, p.Foreground})
	require.Positive(t, p.PID)
	require.Equal(t, p.PID, x.start(req).PID, "asked again it starts nothing")
	other := run("true")
	other.Name = "server"
	x.refused(fault.Conflict, runtime.OpProcessStart, other)

	list, err := request[runtime.Processes](x, runtime.OpProcessList, runtime.ProcessList{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, p.ID, list.Items[0].ID)
	var waiters sync.WaitGroup // any number may wait
	for range 5 {
		waiters.Go(func() {
			if end := x.wait(p.ID); end.Exit == nil || end.Exit.Reason != "cancelled" {
				t.Errorf("waited for %+v", end)
			}
		})
	}
	got, err := request[runtime.Process](x, runtime.OpProcessWait, runtime.ProcessWait{Process: "server", TimeoutMS: 1})
	require.NoError(t, err)
	require.True(t, got.Running)
	x.refused(fault.Conflict, runtime.OpProcessForget, runtime.ProcessRef{Process: "server"})
	stopped, err := request[runtime.Process](x, runtime.OpProcessStop, runtime.ProcessStop{Process: "server"})
	require.NoError(t, err)
	require.Equal(t, workspace.Exit{Code: 143, Signal: "SIGTERM", Reason: "cancelled"}, *stopped.Exit)
	waiters.Wait()
	again, err := request[runtime.Process](x, runtime.OpProcessStop, runtime.ProcessStop{Process: "server"})
	require.NoError(t, err)
	require.Equal(t, stopped.Exit, again.Exit, "twice is no error")

	// Its record and output stay until they are forgotten.
	f, err := x.attach(runtime.AttachRequest{Process: "server"}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"to hello\n", "bad\n"}, []string{f.out, f.err})
	require.Equal(t, runtime.Offsets{Stdout: 9, Stderr: 4}, f.Written)
	require.NotNil(t, f.EndedAt)
	require.Positive(t, f.MaxRSS)
	list, err = request[runtime.Processes](x, runtime.OpProcessList, runtime.ProcessList{All: true})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	x.refused("", runtime.OpProcessForget, runtime.ProcessRef{Process: "server"})
	x.refused("", runtime.OpProcessForget, runtime.ProcessRef{Process: "server"}) // twice
	for _, op := range []string{runtime.OpProcessGet, runtime.OpProcessStop, runtime.OpProcessWait} {
		x.refused(fault.NotFound, op, runtime.ProcessRef{Process: p.ID})
	}
	require.Equal(t, 127, x.wait(x.start(runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"no-such-command"}}}).ID).Exit.Code)
}

func testRefusedProcesses(x bench) {
	minus := int64(-1)
	for _, r := range []func(*runtime.ProcessStart){
		func(r *runtime.ProcessStart) { r.Argv = nil },
		func(r *runtime.ProcessStart) { r.Argv = []string{"a\x00b"} },
		func(r *runtime.ProcessStart) { r.ID = "../../etc" },
		func(r *runtime.ProcessStart) { r.Name = "No Name" },
		func(r *runtime.ProcessStart) { r.Labels = map[string]string{"dev.weft/kind": "exec"} },
		func(r *runtime.ProcessStart) { r.Labels = map[string]string{"big": strings.Repeat("x", 4<<10)} },
		func(r *runtime.ProcessStart) { r.Labels = map[string]string{"": "x"} },
		func(r *runtime.ProcessStart) { r.Env = map[string]string{"A=B": "x"} },
		func(r *runtime.ProcessStart) { r.Output = "lossless" },
		func(r *runtime.ProcessStart) { r.Buffer = 1 << 30 },
		func(r *runtime.ProcessStart) { r.Buffer = -1 },
		func(r *runtime.ProcessStart) { r.TimeoutMS = 1 << 62 },
		func(r *runtime.ProcessStart) { r.GraceMS = -1 },
		func(r *runtime.ProcessStart) { r.Workdir = "relative" },
		func(r *runtime.ProcessStart) { r.User = &runtime.User{UID: 0} },
		func(r *runtime.ProcessStart) { r.User = &runtime.User{UID: 70000} },
		func(r *runtime.ProcessStart) { r.User = &runtime.User{UID: 1000, GID: 61184} },
		func(r *runtime.ProcessStart) { r.Rlimits = []runtime.Rlimit{{Name: "nonsense"}} },
		func(r *runtime.ProcessStart) { r.Rlimits = []runtime.Rlimit{{Name: "nofile", Soft: 2, Hard: 1}} },
	} {
		req := run("true")
		r(&req)
		x.refused(fault.Invalid, runtime.OpProcessStart, req)
	}
	for _, r := range []any{runtime.AttachRequest{Process: "a.b"}, runtime.AttachRequest{Process: "x", At: &runtime.Offsets{}, Tail: &minus}} {
		_, err := x.attach(r.(runtime.AttachRequest), "")
		require.Error(x.t, err)
	}
	x.refused(fault.Invalid, runtime.OpProcessGet, runtime.ProcessRef{Process: "*"})
	x.refused(fault.Invalid, runtime.OpProcessWait, runtime.ProcessWait{Process: "x", TimeoutMS: 1 << 40})
	x.refused(fault.Invalid, runtime.OpProcessStop, runtime.ProcessStop{Process: "x", GraceMS: &minus})
	x.refused(fault.NotFound, runtime.OpProcessSignal, runtime.SignalRequest{Process: "nobody", Signal: "TERM"})
}

func testProcessOptions(x bench) {
	t := x.t
	req := run("id -u; id -g; ulimit -n; ulimit -u; pwd; trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
	req.User, req.Workdir = &runtime.User{UID: 2000, GID: 3000}, "/tmp"
	req.Rlimits = []runtime.Rlimit{{Name: "nofile", Soft: 77, Hard: 88}}
	p := x.start(req)
	require.Equal(t, uint32(2000), p.UID)
	x.refused(fault.Invalid, runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "NONSENSE"})
	x.refused(fault.Invalid, runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "65"})
	x.refused(fault.Invalid, runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "TERM", Target: "world"})
	x.until(p.ID, "ready")
	x.refused("", runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "10", Target: "process"})
	require.Equal(t, 5, x.wait(p.ID).Exit.Code)
	x.refused(fault.NotFound, runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "USR1"})
	f, err := x.attach(runtime.AttachRequest{Process: p.ID}, "")
	require.NoError(t, err)
	lines := strings.Split(f.out, "\n")
	require.Equal(t, []string{"2000", "3000", "77"}, lines[:3])
	require.Contains(t, f.out, "/tmp\nready\nusr1\n")

	// The tree: also what has left the group.
	p = x.start(run("setsid sh -c 'trap \"\" TERM; echo inner; exec sleep 1000' & echo outer; wait; sleep 1000")) // the inner one may be killed first
	x.until(p.ID, "inner")
	x.refused("", runtime.OpProcessSignal, runtime.SignalRequest{Process: p.ID, Signal: "KILL", Target: "tree"})
	require.Equal(t, "SIGKILL", x.wait(p.ID).Exit.Signal)
	req = run("trap '' TERM; sleep 1000")
	req.TimeoutMS, req.GraceMS = 50, 50
	require.Equal(t, "timeout", x.wait(x.start(req).ID).Exit.Reason)
}

// until waits until a process has written something.
func (x bench) until(process, what string) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		f, err := x.attach(runtime.AttachRequest{Process: process, Kept: true}, "")
		return err == nil && strings.Contains(f.out, what)
	}, 30*time.Second, 10*time.Millisecond, "%q", what)
}

func testAttach(x bench) {
	t := x.t
	req := run("while read -r line; do echo \"<$line>\"; echo err >&2; [ $line = end ] && exit 3; done; echo eof")
	req.Stdin = true
	p := x.start(req)
	// Two see all of it; one of them writes.
	results := make(chan followed, 1)
	go func() {
		f, err := x.attach(runtime.AttachRequest{Process: p.ID, Reader: schemas.NewID()}, "")
		if err != nil {
			t.Error(err)
		}
		results <- f
	}()
	f, err := x.attach(runtime.AttachRequest{Process: p.ID, Stdin: true}, "one\ntwo\nend\n")
	require.NoError(t, err)
	for _, f := range []followed{f, <-results} {
		require.Equal(t, "<one>\n<two>\n<end>\n", f.out)
		require.Equal(t, "err\nerr\nerr\n", f.err)
		require.Equal(t, 3, f.Exit.Code)
		require.Empty(t, f.gaps)
	}
	// From an offset, and from the end.
	f, err = x.attach(runtime.AttachRequest{Process: p.ID, At: &runtime.Offsets{Stdout: 6, Stderr: 12}}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"<two>\n<end>\n", ""}, []string{f.out, f.err})
	tail := int64(4)
	f, err = x.attach(runtime.AttachRequest{Process: p.ID, Tail: &tail}, "")
	require.NoError(t, err)
	require.Equal(t, []string{"nd>\n", "err\n"}, []string{f.out, f.err})
	require.Equal(t, runtime.Offsets{Stdout: 14, Stderr: 8}, f.at.At)
	_, err = x.attach(runtime.AttachRequest{Process: p.ID, At: &runtime.Offsets{Stdout: 1000}}, "")
	require.Equal(t, fault.Invalid, fault.CodeOf(err), "beyond the end: %v", err)
	_, err = x.attach(runtime.AttachRequest{Process: p.ID, Owner: true}, "")
	require.Equal(t, fault.Invalid, fault.CodeOf(err), "it has no owner: %v", err)

	// A ring that has dropped something says so, and goes on at the right place.
	req = run("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")
	req.Output, req.Buffer = runtime.OutputRing, 4<<10
	p = x.wait(x.start(req).ID)
	f, err = x.attach(runtime.AttachRequest{Process: p.ID, At: &runtime.Offsets{}}, "")
	require.NoError(t, err)
	require.Len(t, f.gaps, 1)
	require.Equal(t, p.Oldest.Stdout, f.gaps[0].Offset)
	require.Equal(t, f.gaps[0].Offset, f.gaps[0].Lost)
	require.EqualValues(t, p.Written.Stdout-p.Oldest.Stdout, len(f.out))
	require.True(t, strings.HasSuffix(f.out, "19999\n"))

	// Leaving leaves it running; what was written meanwhile is there later.
	p = x.start(run("echo before; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo after"))
	ctx := meshtest.Context(t)
	s, err := stream.Open(ctx, x.c, sbx(t, x.b, runtime.OpAttach), runtime.AttachRequest{Process: p.ID})
	require.NoError(t, err)
	_, err = io.ReadFull(s.Channel(stream.Stdout), make([]byte, 7))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, _, _ = execute(t, x.c, x.b, shell("touch /tmp/go"), "")
	require.Equal(t, 0, x.wait(p.ID).Exit.Code)
	f, err = x.attach(runtime.AttachRequest{Process: p.ID}, "")
	require.NoError(t, err)
	require.Equal(t, "before\nafter\n", f.out)
}

// One who is attached and never reads holds up nobody else for long, and finds a gap when it reads at last.
func testStalledClient(x bench) {
	t := x.t
	const n = 8_000_000
	req := run(fmt.Sprintf("while [ ! -e /tmp/start ]; do sleep 0.02; done; head -c %d /dev/zero", n))
	req.Buffer = 256 << 10
	p := x.start(req)
	ctx := meshtest.Context(t)
	stalled, err := stream.Open(ctx, x.c, sbx(t, x.b, runtime.OpAttach), runtime.AttachRequest{Process: p.ID, Reader: schemas.NewID()})
	require.NoError(t, err)
	defer stalled.Close()
	_, err = stalled.Receive(ctx) // it is attached
	require.NoError(t, err)
	go func() { _, _, _ = execute(t, x.c, x.b, shell("touch /tmp/start"), "") }()
	f, err := x.attach(runtime.AttachRequest{Process: p.ID}, "")
	require.NoError(t, err)
	require.Equal(t, n, len(f.out))
	require.Empty(t, f.gaps)
	go func() { _, _ = io.Copy(io.Discard, stalled.Channel(stream.Stdout)) }()
	for {
		m, err := stalled.Receive(ctx)
		require.NoError(t, err, "it is told")
		if m.Type == stream.Gap {
			break
		}
	}
}

func testBackgroundTerminal(x bench) {
	t := x.t
	req := run("stty size; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done")
	req.PTY, req.Rows, req.Cols = true, 24, 80
	p := x.start(req)
	x.until(p.ID, "ready")
	x.refused("", runtime.OpProcessResize, runtime.ResizeRequest{Process: p.ID, Rows: 50, Cols: 132})
	require.Equal(t, 0, x.wait(p.ID).Exit.Code)
	f, err := x.attach(runtime.AttachRequest{Process: p.ID}, "")
	require.NoError(t, err)
	require.True(t, f.PTY)
	require.Contains(t, f.out, "24 80")
	require.Contains(t, f.out, "50 132")
}

func testTwoHundred(x bench) {
	t := x.t
	const n = 200
	ids := make([]string, n)
	var starts sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range ids {
		starts.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ids[i] = x.start(runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo %d; read x; exit %d", i, i%100)}, Stdin: true}}).ID
		})
	}
	starts.Wait()
	list, err := request[runtime.Processes](x, runtime.OpProcessList, runtime.ProcessList{})
	require.NoError(t, err)
	require.Equal(t, n, len(list.Items), "all of them run at once")
	var ends sync.WaitGroup
	for i, id := range ids {
		ends.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f, err := x.attach(runtime.AttachRequest{Process: id, Stdin: true}, "\n")
			if err != nil || f.Exit.Code != i%100 || f.out != fmt.Sprintf("%d\n", i) {
				t.Errorf("process %d: %+v %v", i, f, err)
			}
			_, _ = request[workspace.Empty](x, runtime.OpProcessForget, runtime.ProcessRef{Process: id})
		})
	}
	ends.Wait()
}

// dial connects to an address inside.
func (x bench) dial(req runtime.DialRequest) (*stream.Session, error) {
	ctx := meshtest.Context(x.t)
	s, err := stream.Open(ctx, x.c, sbx(x.t, x.b, runtime.OpDial), req)
	if err != nil {
		return nil, err
	}
	m, err := s.Receive(ctx)
	if err != nil {
		err = s.Result(ctx, nil)
		_ = s.Close()
		return nil, err
	}
	require.Equal(x.t, stream.Connected, m.Type)
	return s, nil
}

// shout serves one connection after the other: what came, in upper case, when the client has closed its half.
const shout = `
import socket, sys
where = sys.argv[1]
s = socket.socket(socket.AF_UNIX if where[0] == "/" else socket.AF_INET)
s.bind(where if where[0] == "/" else ("127.0.0.1", int(where)))
s.listen()
while True:
    c, _ = s.accept()
    got = b""
    while True:
        b = c.recv(65536)
        if not b: break
        got += b
    c.sendall(got.upper())
    c.close()
`

func testPorts(x bench) {
	t := x.t
	for _, addr := range []runtime.DialRequest{{Network: "tcp", Port: 7777}, {Network: "unix", Path: "/tmp/sock"}} {
		where := fmt.Sprint(addr.Port)
		if addr.Path != "" {
			where = addr.Path
		}
		p := x.start(runtime.ProcessStart{ExecRequest: runtime.ExecRequest{Argv: []string{"python3", "-c", shout, where}}})
		var s *stream.Session
		require.Eventually(t, func() bool {
			var err error
			s, err = x.dial(addr)
			if err != nil {
				require.Contains(t, []fault.Code{fault.Unavailable, fault.NotFound}, fault.CodeOf(err), "%v", err)
			}
			return err == nil
		}, 30*time.Second, 20*time.Millisecond)
		data := s.Channel(stream.Data)
		big := strings.Repeat("abcdefgh", 100_000)
		go func() {
			_, _ = io.WriteString(data, big)
			_ = data.CloseWrite()
		}()
		got, err := io.ReadAll(data)
		require.NoError(t, err)
		require.True(t, strings.ToUpper(big) == string(got), "%d bytes came back", len(got))
		var res runtime.DialResult
		require.NoError(t, s.Result(meshtest.Context(t), &res))
		require.Equal(t, runtime.DialResult{Sent: int64(len(big)), Received: int64(len(big))}, res)
		_ = s.Close()
		_, err = request[runtime.Process](x, runtime.OpProcessStop, runtime.ProcessStop{Process: p.ID})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		req  runtime.DialRequest
		code fault.Code
	}{
		{runtime.DialRequest{Network: "tcp", Port: 7778}, fault.Unavailable},
		{runtime.DialRequest{Network: "tcp", Port: 0}, fault.Invalid},
		{runtime.DialRequest{Network: "tcp", Port: 65536}, fault.Invalid},
		{runtime.DialRequest{Network: "udp", Port: 53}, fault.Invalid},
		{runtime.DialRequest{Network: "unix", Path: "relative"}, fault.Invalid},
		{runtime.DialRequest{Network: "unix", Path: "/tmp/none"}, fault.Unavailable},
		{runtime.DialRequest{Network: "unix", Path: "/.weft/run/socket"}, fault.Unavailable},
	} {
		_, err := x.dial(c.req)
		require.Equal(t, c.code, fault.CodeOf(err), "%+v: %v", c.req, err)
	}
}

// A command whose caller is lost with the node's process goes on without it for a while, and not for ever.
func TestACommandWhoseCallerIsAway(t *testing.T) {
	w, m, n := onMesh(t)
	x := bench{t, m.User("acme", "alice"), w.createBox(t)}
	req := shell("echo begun; exec sleep 5432")
	req.ID = schemas.NewID()
	s, err := stream.Open(meshtest.Context(t), x.c, sbx(t, x.b, runtime.OpExec), req)
	require.NoError(t, err)
	_, err = s.Receive(meshtest.Context(t))
	require.NoError(t, err)
	n.stop()
	_ = s.Close()
	restart := func(grace time.Duration) {
		cfg := meshConfig(m.Node("node-1"), nil)
		cfg.timing.caller = grace
		n = startNode(t, cfg)
	}
	restart(time.Minute)
	p, err := request[runtime.Process](x, runtime.OpProcessGet, runtime.ProcessRef{Process: req.ID})
	require.NoError(t, err)
	require.True(t, p.Running && p.Foreground, "%+v", p)
	x.refused(fault.Conflict, runtime.OpProcessForget, runtime.ProcessRef{Process: req.ID})
	// Its caller comes back, and goes again.
	o, err := stream.Open(meshtest.Context(t), x.c, sbx(t, x.b, runtime.OpAttach), runtime.AttachRequest{Process: req.ID, Owner: true})
	require.NoError(t, err)
	b := make([]byte, 6)
	_, err = io.ReadFull(o.Channel(stream.Stdout), b)
	require.NoError(t, err)
	require.Equal(t, "begun\n", string(b))
	n.stop()
	_ = o.Close()
	restart(50 * time.Millisecond)
	require.Eventually(t, func() bool {
		l, err := request[runtime.Processes](x, runtime.OpProcessList, runtime.ProcessList{All: true})
		return err == nil && len(l.Items) == 0
	}, 30*time.Second, 20*time.Millisecond)
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: x.b.ID}))
	n.stop()
}
