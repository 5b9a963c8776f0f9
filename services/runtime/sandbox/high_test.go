package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func high(s *Spec) { s.Level = workspace.LevelHigh }

// A sandbox of level high does what one of level standard does, in a kernel of its own: what it sees, files, secrets,
// processes, pause, a restart of the node's process, and its end, after which nothing is left.
func TestHigh(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	s := create(t, n, high, func(s *Spec) { s.Files, s.Resources.MemoryBytes = true, 128<<20 })
	closed := false
	t.Cleanup(func() {
		if !closed {
			require.NoError(t, s.Destroy(within(t, time.Minute)))
			require.NoError(t, n.Close())
		}
	})
	requireNothingRuns(t, s)
	t.Run("files", func(t *testing.T) { highFiles(t, s) })
	t.Run("sees", func(t *testing.T) { highSees(t, s) })
	t.Run("processes", func(t *testing.T) { highProcesses(t, s) })
	t.Run("pause", func(t *testing.T) { highPause(t, s) })

	p, err := s.Supervisor().Start(within(t, time.Minute), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", count), Identity: Payload(), Output: supervisor.OutputLossless,
		Env: supervisor.Texts("PATH=/bin:/usr/bin"),
	})
	require.NoError(t, err)
	id := p.ID()
	out := readSome(t, p, nil, 50)
	require.NoError(t, p.Close())
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())
	closed = true

	n = newNode(t, machine.Engine(t))
	adopted, err := n.Adopt(within(t, time.Minute))
	require.NoError(t, err)
	require.Len(t, adopted, 1)
	again := adopted[0]
	require.Equal(t, workspace.LevelHigh, again.Spec().Level)
	p, err = again.Supervisor().Attach(within(t, time.Minute), id, supervisor.Offsets{Stdout: uint64(len(out))})
	require.NoError(t, err)
	require.Equal(t, counted(), string(readSome(t, p, out, len(counted()))))
	require.NoError(t, p.Close())
	_, secret := sh(t, again, "cat /run/secrets/token")
	require.Equal(t, "hunter2", secret)

	require.NotEmpty(t, highTraces(t, n))
	require.NoError(t, again.Destroy(within(t, time.Minute)))
	<-again.Gone()
	requireNothing(t, n)
	require.Empty(t, highTraces(t, n))
}

// noAdmin counts who is process 1's program, and names who could mount something.
const noAdmin = "grep -lx init /proc/[0-9]*/comm | wc -l; for c in $(awk '/^Cap/ {print $2}' /proc/[0-9]*/status); do [ $((0x$c >> 21 & 1)) = 0 ] || echo admin; done"

// requireNothingRuns before the sandbox has its workspace: there is still somebody in it who may mount.
func requireNothingRuns(t *testing.T, s *Sandbox) {
	_, err := s.Supervisor().Run(within(t, 20*time.Second), supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/true"), Identity: Payload(), Dir: "/"}, nil, 1)
	require.True(t, fault.Is(err, fault.Conflict), "%v", err)
}

// readSome reads output until there are at least want bytes, each in its place.
func readSome(t *testing.T, p *supervisor.Process, out []byte, want int) []byte {
	for len(out) < want {
		e, err := p.Next(within(t, time.Minute))
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e.Exit == nil {
			require.EqualValues(t, len(out), e.Offset)
			out = append(out, e.Data...)
		}
	}
	return out
}

// highTraces is what gVisor itself keeps on the node.
func highTraces(t *testing.T, n *Node) []string {
	states, err := n.engine.RuntimeStates()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(machine.RunDir, "runsc", "weft", "*"))
	require.NoError(t, err)
	return append(states, files...)
}

func highSees(t *testing.T, s *Sandbox) {
	for _, c := range []struct{ name, script, want string }{
		{"gVisor's kernel, not the node's", "cut -d' ' -f3 /proc/version | grep -o gvisor", "gvisor\n"},
		{"it is the payload, without capabilities", "id -u; grep -c '^Cap.*:[[:space:]]0000000000000000$' /proc/self/status", "1000\n5\n"},
		{"no new privileges, and a filter", "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'", "NoNewPrivs:1\nSeccomp:2\n"},
		{"no other network than loopback", "grep -c : /proc/net/dev; grep -c lo: /proc/net/dev; bash -c ': < /dev/tcp/192.0.2.1/80' 2>&1 | grep -o unreachable | head -1", "1\n1\nunreachable\n"},
		{"process 1 is closed to it", "cat /proc/1/environ 2>&1 >/dev/null | grep -o 'Permission denied'; kill -9 1 2>&1 | grep -o 'not permitted'", "Permission denied\nnot permitted\n"},
		{"a root that it can't write, and no disk", "touch /x /etc/x 2>&1 | grep -cE 'Read-only|Permission denied'; ls -l /dev | grep -c ^b", "2\n0\n"},
		{"its memory, not the node's", "awk '/MemTotal/ {print ($2 <= 256*1024)}' /proc/meminfo", "1\n"},
		{"its own places to write", "for d in /tmp $HOME /dev/shm; do echo x > $d/x && cat $d/x; done; grep -c /workspace /proc/self/mounts", "x\nx\nx\n2\n"},
		{"who showed the workspace is gone, and nobody can mount", noAdmin, "1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := sh(t, s, c.script)
			require.Equal(t, c.want, out)
		})
	}
	// Outside it is nobody: the sentry and the gofer run as users of its own range.
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.init.PID), "status"))
	require.NoError(t, err)
	require.Contains(t, string(status), "\nUid:\t"+strconv.Itoa(int(s.ids.first()))+"\t")
}

func highFiles(t *testing.T, s *Sandbox) {
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	files := filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}
	require.NoError(t, s.MountWorkspace(files, false), "it comes when the sandbox runs")
	require.NoError(t, s.MountWorkspace(files, false), "again changes nothing")
	_, out := sh(t, s, "cd /workspace && cat a.txt && stat -c '%u %a' . a.txt && echo more >> a.txt && echo new > b.txt && mkdir d && ln -s /etc/passwd l")
	require.Equal(t, "hello\n1000 755\n1000 644\n", out)
	for _, f := range []string{"a.txt", "b.txt", "d", "l"} {
		require.EqualValues(t, diskUID, ownerOn(t, filepath.Join(dir, f)), f)
	}
	b, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "hello\nmore\n", string(b))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.txt"), []byte("from the node\n"), 0o644))
	require.NoError(t, os.Chown(filepath.Join(dir, "c.txt"), diskUID, diskUID))
	_, out = sh(t, s, "cat /workspace/c.txt")
	require.Equal(t, "from the node\n", out)

	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("one")}}))
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}), "again replaces")
	require.NoError(t, s.WriteInput([]byte(`{"n":1}`)))
	_, out = sh(t, s, "cat /run/secrets/token; ls -ln /run/secrets | tail -n +2 | cut -d' ' -f1,3,4; cat "+InputPath+"; touch /run/secrets/x 2>&1 | grep -cE 'Read-only|denied'")
	require.Equal(t, "hunter2-r-------- 1000 1000\n{\"n\":1}1\n", out)
}

func highProcesses(t *testing.T, s *Sandbox) {
	ctx := within(t, time.Minute)
	start := func(script string, change func(*supervisor.ProcessSpec)) *supervisor.Process {
		spec := supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/sh", "-c", script), Identity: Payload(), Dir: "/tmp",
			Env: supervisor.Texts("PATH=/bin:/usr/bin", "GREETING=hello"), Stdin: true, KillLeftovers: true}
		change(&spec)
		p, err := s.Supervisor().Start(ctx, spec)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	pipe := start("echo $GREETING $PWD; cat; echo error >&2; exit 3", func(*supervisor.ProcessSpec) {})
	require.NoError(t, pipe.WriteStdin(ctx, []byte("typed\n")))
	require.NoError(t, pipe.CloseStdin(ctx))
	said, exit := finish(t, pipe)
	require.Equal(t, "hello /tmp\ntyped\nerror\n", said[supervisor.Stdout]+said[supervisor.Stderr])
	require.Equal(t, 3, exit.Code)

	tty := start("stty size; read line; echo got $line", func(p *supervisor.ProcessSpec) { p.PTY = &supervisor.Size{Rows: 30, Cols: 100} })
	require.NoError(t, tty.WriteStdin(ctx, []byte("typed\n")))
	said, exit = finish(t, tty)
	require.Contains(t, said[supervisor.Stdout], "30 100\r\n")
	require.Contains(t, said[supervisor.Stdout], "got typed\r\n")
	require.Zero(t, exit.Code)

	// A process that made its own session, and one that minds no signal, end with their tree.
	stubborn := start("(trap '' TERM HUP; setsid sleep 1000 & setsid sleep 1000 & echo ready; wait) & wait", func(*supervisor.ProcessSpec) {})
	e, err := stubborn.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(e.Data))
	require.NoError(t, stubborn.Signal(ctx, syscall.SIGKILL, supervisor.TargetTree))
	_, _ = finish(t, stubborn)
	require.Eventually(t, func() bool { _, out := sh(t, s, "cat /proc/[0-9]*/comm | grep -c sleep"); return out == "0\n" }, 30*time.Second, 20*time.Millisecond)
}

// finish reads a process's streams to their end.
func finish(t *testing.T, p *supervisor.Process) (map[supervisor.Stream]string, supervisor.Exit) {
	said, exit := map[supervisor.Stream]string{}, supervisor.Exit{}
	for {
		e, err := p.Next(within(t, time.Minute))
		if err == io.EOF {
			return said, exit
		}
		require.NoError(t, err)
		if e.Exit != nil {
			exit = *e.Exit
		} else {
			said[e.Stream] += string(e.Data)
		}
	}
}

func highPause(t *testing.T, s *Sandbox) {
	p, err := s.Supervisor().Start(within(t, time.Minute), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /tmp/beat; done"), Identity: Payload(), Env: supervisor.Texts("PATH=/bin"),
	})
	require.NoError(t, err)
	require.NoError(t, s.Pause(within(t, time.Minute)))
	paused, err := s.Paused()
	require.NoError(t, err)
	require.True(t, paused)
	before, err := s.Stats()
	require.NoError(t, err)
	require.NoError(t, s.Resume(within(t, time.Minute)))
	require.Eventually(t, func() bool { u, err := s.Stats(); return err == nil && u.CPU > before.CPU }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, p.Stop(within(t, time.Minute), 0))
	require.NoError(t, p.Close())
}

// Too much memory and too many processes end a sandbox of level high, not the node or another one.
func TestHighBeyondItsLimits(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	beyond := func(s *Sandbox, script string) {
		_, err := s.Supervisor().Start(within(t, time.Minute), supervisor.ProcessSpec{
			Argv: supervisor.Texts("/bin/bash", "-c", script), Identity: Payload(), Env: supervisor.Texts("PATH=/bin:/usr/bin"), Output: supervisor.OutputRing,
		})
		require.NoError(t, err)
		select {
		case <-s.Gone():
		case <-within(t, 90*time.Second).Done():
			t.Fatal("it lives on")
		}
	}
	memory := create(t, n, high)
	require.False(t, memory.OutOfMemory())
	beyond(memory, "exec tail /dev/zero")
	require.True(t, memory.OutOfMemory(), "the reason is known")
	u, err := memory.Stats()
	require.NoError(t, err)
	const forced = 1 << 20 // a few pages that the kernel itself can't do without are charged beyond a limit
	require.LessOrEqual(t, u.Peak, memory.Spec().Resources.MemoryBytes+High.ReserveMemory+forced)
	require.NoError(t, memory.Destroy(within(t, time.Minute)))

	pids := create(t, n, high, func(s *Spec) { s.Resources.PIDs, s.Resources.MemoryBytes = 8, 512<<20 })
	beyond(pids, "bomb() { bomb | bomb & }; bomb; sleep 1000")
	require.False(t, pids.OutOfMemory())
	require.True(t, pids.OutOfPIDs(), "the reason is known")
	require.NoError(t, pids.Destroy(within(t, time.Minute)))
	requireNothing(t, n)
	require.Empty(t, highTraces(t, n))
}

func TestANodeWithoutGVisorRefusesLevelHigh(t *testing.T) {
	machine.Need(t)
	cfg := machine.Config
	cfg.Runsc, cfg.RunscShim = "", ""
	e, err := containerd.Open(within(t, time.Minute), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	n := newNode(t, e)
	spec := testSpec()
	spec.Level = workspace.LevelHigh
	_, err = n.Create(within(t, time.Minute), spec)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.ErrorContains(t, err, "make setup")
	require.NotContains(t, n.Levels(), workspace.LevelHigh)
	require.Contains(t, newNode(t, machine.Engine(t)).Levels(), workspace.LevelHigh)
	requireNothing(t, n)
}

// A sandbox may state its runtime: any that containerd knows by its name, and nothing that is not a name.
func TestAnyOtherRuntimeByName(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	with := func(runtime string) func(*Spec) {
		return func(s *Spec) {
			s.Level, s.Isolation.Custom = workspace.LevelCustom, &workspace.Custom{Runtime: runtime}
		}
	}
	s := create(t, n, with(nodetest.OtherRuntime))
	_, out := sh(t, s, "id -u")
	require.Equal(t, "1000\n", out)
	record, err := n.engine.Client().ContainerService().Get(containerd.InNamespace(within(t, time.Minute)), s.ID())
	require.NoError(t, err)
	require.Equal(t, nodetest.OtherRuntime, record.Runtime.Name)
	require.NoError(t, s.Destroy(within(t, time.Minute)))
	s = create(t, n, with(containerd.Runsc))
	_, out = sh(t, s, "grep -o gvisor /proc/version")
	require.Equal(t, "gvisor\n", out)
	require.NoError(t, s.Destroy(within(t, time.Minute)))
	requireNothing(t, n)

	for name, code := range map[string]fault.Code{
		"io.containerd.no-such.v9": fault.Unavailable, "/bin/sh": fault.Invalid, "io.containerd.../../x.v1": fault.Invalid, "runc": fault.Invalid, "io.containerd.runc.v2\n": fault.Invalid,
	} {
		spec := testSpec()
		with(name)(&spec)
		_, err := n.Create(within(t, time.Minute), spec)
		require.True(t, fault.Is(err, code), "%q: %v", name, err)
	}
	requireNothing(t, n)
}

// A blank sandbox of level high becomes somebody's: files, limits, credentials come with the claim. One with a root of
// its own has that, too.
func TestHighIsClaimed(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	mold := testMold()
	mold.Level = workspace.LevelHigh
	m, err := n.CreateBlank(within(t, time.Minute), mold)
	require.NoError(t, err)
	requireNothingRuns(t, m)
	spec := testSpec()
	high(&spec)
	spec.Files = true
	s, err := n.Bind(within(t, time.Minute), m, spec)
	require.NoError(t, err)
	requireNothingRuns(t, s)
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false))
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}))
	_, out := sh(t, s, "cat /etc/hostname /workspace/a.txt /run/secrets/token; touch /workspace/b; stat -c %u /workspace/b")
	require.Equal(t, "planner\nhello\nhunter21000\n", out)
	require.EqualValues(t, diskUID, ownerOn(t, filepath.Join(dir, "b")))
	limits, err := s.group.Limits()
	require.NoError(t, err)
	require.Equal(t, s.limits(High), limits)
	require.NoError(t, s.Destroy(within(t, time.Minute)))

	mold.Isolation = workspace.Isolation{RootInside: true, WritableRoot: true}
	m, err = n.CreateBlank(within(t, time.Minute), mold)
	require.NoError(t, err)
	spec = testSpec()
	high(&spec)
	spec.Isolation = mold.Isolation
	s, err = n.Bind(within(t, time.Minute), m, spec)
	require.NoError(t, err)
	r, err := s.Supervisor().Run(within(t, time.Minute), supervisor.ProcessSpec{
		Argv:     supervisor.Texts("/bin/sh", "-c", "id -u; echo x > /etc/x && chown 1000 /etc/x && stat -c %u /etc/x; echo y > /workspace/y && cat /workspace/y; df -k / | awk 'END {print ($2 < 2*1024*1024)}'"),
		Identity: s.Payload(), Dir: "/", Env: supervisor.Texts("PATH=/usr/bin:/bin"),
	}, nil, 1<<20)
	require.NoError(t, err)
	require.Equal(t, "0\n1000\ny\n1\n", string(r.Stdout)+string(r.Stderr))
	_, out = sh(t, s, noAdmin)
	require.Equal(t, "1\n", out, "also beside root inside")
	require.NoError(t, s.Destroy(within(t, time.Minute)))
	requireNothing(t, n)
	require.Empty(t, highTraces(t, n))
}

// Sandboxes of one tenant share shims, whichever of them came first and goes first.
func TestHighSharesShims(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	want := lane("00000000000000000000")
	sameLane := func(s *Spec) {
		for high(s); lane(s.ID) != want; s.ID = schemas.NewID() {
		}
	}
	first, second := create(t, n, sameLane), create(t, n, sameLane)
	shim := func(s *Sandbox) int {
		p, err := proc.Identify(s.init.PID)
		require.NoError(t, err)
		return p.Parent
	}
	require.Equal(t, shim(first), shim(second))
	require.NoError(t, first.Destroy(within(t, time.Minute)))
	third := create(t, n, sameLane, func(s *Spec) { s.Files = true })
	require.Equal(t, shim(second), shim(third), "the one that it was started for is gone, and its directory")
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, third.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false))
	_, out := sh(t, third, "cat /workspace/a.txt")
	require.Equal(t, "hello\n", out)
	other := create(t, n, sameLane, func(s *Spec) { s.Tenant = "bolt" })
	require.NotEqual(t, shim(third), shim(other), "never two tenants")
	for _, s := range []*Sandbox{second, other, third} {
		require.NoError(t, s.Destroy(within(t, time.Minute)))
	}
	requireNothing(t, n)
	require.Empty(t, highTraces(t, n))
}

// A unix socket inside can be dialled under gVisor as under runc, by the payload and by root inside, and a command
// has the working directory that it was given.
func TestHighDialsSockets(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	for _, root := range []bool{false, true} {
		s := create(t, n, high, func(s *Spec) { s.Image, s.Isolation.RootInside = "python", root })
		const echo = "import socket\ns=socket.socket(socket.AF_UNIX); s.bind('echo'); s.listen(); print('listening', flush=True)\nc=s.accept()[0]; c.sendall(c.recv(9).upper()); c.close()"
		p, err := s.Supervisor().Start(within(t, 30*time.Second), supervisor.ProcessSpec{
			Argv: supervisor.Texts("/usr/bin/python3", "-c", echo), Identity: s.Payload(), Dir: "/tmp", Output: supervisor.OutputAttached,
		})
		require.NoError(t, err)
		ev, err := p.Next(within(t, 30*time.Second))
		require.NoError(t, err)
		require.Equal(t, "listening\n", string(ev.Data))
		c, err := s.Supervisor().DialAs(within(t, 30*time.Second), s.Payload(), "/tmp/echo")
		require.NoError(t, err)
		_, err = c.Write([]byte("hello"))
		require.NoError(t, err)
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, "HELLO", string(got))
		require.NoError(t, c.Close())
		require.NoError(t, p.Close())
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
	requireNothing(t, n)
}
