package supervisor_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func TestRun(t *testing.T) {
	b := newBox(t)

	t.Run("outputs apart and exit code", func(t *testing.T) {
		res := b.run(shell("echo out; echo err >&2; exit 7"))
		require.Equal(t, "out\n", string(res.Stdout))
		require.Equal(t, "err\n", string(res.Stderr))
		require.Equal(t, 7, res.Exit.Code)
		require.Equal(t, supervisor.ReasonExited, res.Exit.Reason)
		require.EqualValues(t, 4, res.Exit.Stdout)
		require.EqualValues(t, 4, res.Exit.Stderr)
	})
	t.Run("a signal ends it", func(t *testing.T) {
		res := b.run(shell("kill -SEGV $$"))
		require.Equal(t, 128+11, res.Exit.Code)
		require.Equal(t, "SIGSEGV", res.Exit.Signal)
		require.Equal(t, supervisor.ReasonSignaled, res.Exit.Reason)
	})
	t.Run("what it used", func(t *testing.T) {
		res := b.run(shell("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"))
		require.Positive(t, res.Exit.UserCPU+res.Exit.SystemCPU)
		require.Greater(t, res.Exit.MaxRSS, int64(100<<10))
		require.False(t, res.Exit.End.Before(res.Exit.Start))
	})
	t.Run("environment is what was given and nothing else", func(t *testing.T) {
		spec := command("/usr/bin/env")
		spec.Env = supervisor.Texts("A=1", "B=a b=c\n")
		require.Equal(t, "A=1\nB=a b=c\n\n", string(b.run(spec).Stdout))
	})
	t.Run("bytes that are no UTF-8 pass unchanged", func(t *testing.T) {
		raw := "\xff\xfe\x01 \"\\\u2028é"
		spec := command("printf", "%s", raw)
		require.Equal(t, raw, string(b.run(spec).Stdout))
	})
	t.Run("identity and groups", func(t *testing.T) {
		spec := command("id")
		spec.Identity = supervisor.Identity{UID: 1234, GID: 2345, Groups: []uint32{7, 8}}
		out := string(b.run(spec).Stdout)
		require.Contains(t, out, "uid=1234")
		require.Contains(t, out, "gid=2345")
		require.Contains(t, out, "groups=2345,7,8")
	})
	t.Run("long arguments", func(t *testing.T) {
		arg := strings.Repeat("x", 100<<10)
		args := []string{"sh", "-c", "echo $# ${#1}", "sh"}
		for range 15 {
			args = append(args, arg)
		}
		require.Equal(t, "15 102400", b.output(args...))
	})
	t.Run("its working directory", func(t *testing.T) {
		spec := command("pwd")
		spec.Dir = "/usr/lib"
		require.Equal(t, "/usr/lib\n", string(b.run(spec).Stdout))
	})
	t.Run("stdin is empty unless asked for", func(t *testing.T) {
		require.Empty(t, b.output("cat"))
	})
	t.Run("limit of what is collected", func(t *testing.T) {
		res, err := b.Run(within(t, 10*time.Second), shell("head -c 100000 /dev/zero"), nil, 1000)
		require.NoError(t, err)
		require.Len(t, res.Stdout, 1000)
		require.True(t, res.Truncated)
	})
	t.Run("nothing is left listed", func(t *testing.T) {
		require.Eventually(t, func() bool {
			l, err := b.List(within(t, time.Second))
			return err == nil && len(l) == 0
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestCommandsThatCannotBeExecuted(t *testing.T) {
	b := newBox(t)
	setup := `echo data >/tmp/plain; printf '#!/no/such/interpreter\n' >/tmp/script; chmod 755 /tmp/script
		printf garbage >/tmp/garbage; chmod 755 /tmp/garbage; mkdir /tmp/bin; printf 'x' >/tmp/bin/tool
		mkdir -m 700 /tmp/private; printf '#!/bin/sh\necho private\n' >/tmp/private/mine; chmod 755 /tmp/private/mine`
	require.Zero(t, b.run(shell(setup)).Exit.Code)
	in := func(dir string, argv ...string) supervisor.ProcessSpec {
		s := command(argv...)
		s.Dir, s.Env = supervisor.Text(dir), supervisor.Texts("PATH=/tmp/private:/tmp/bin:/usr/bin")
		return s
	}
	for _, c := range []struct {
		name string
		spec supervisor.ProcessSpec
		code int
		says string
	}{
		{"not in PATH", in("/", "nonsense"), 127, "nonsense: command not found"},
		{"no such path", in("/", "/usr/bin/nonsense"), 127, "no such file"},
		{"no such relative path", in("/tmp", "./nonsense"), 127, "no such file"},
		{"below a file", in("/", "/usr/bin/env/x"), 127, "no such file"},
		{"interpreter is missing", in("/", "/tmp/script"), 127, "interpreter"},
		{"not executable", in("/", "/tmp/plain"), 126, "permission denied"},
		{"not executable in PATH", in("/", "tool"), 126, "permission denied"},
		{"a directory", in("/", "/tmp"), 126, "permission denied"},
		{"not a program", in("/", "/tmp/garbage"), 126, "not a program"},
		{"process 1's own directory", in("/", "/.weft/run/sock"), 126, "permission denied"},
		{"no working directory", in("/nowhere", "true"), 126, "working directory /nowhere does not exist"},
		{"working directory is a file", in("/tmp/plain", "true"), 126, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, limits := range [][]supervisor.Rlimit{nil, {{Name: "core"}}} {
				c.spec.Rlimits = limits
				res := b.run(c.spec)
				require.Equal(t, c.code, res.Exit.Code, res.Exit.Message)
				require.Equal(t, supervisor.ReasonFailed, res.Exit.Reason)
				require.Contains(t, res.Exit.Message, c.says)
			}
		})
	}
	t.Run("found where only its user can look", func(t *testing.T) {
		require.Equal(t, "private\n", string(b.run(in("/", "mine")).Stdout))
	})
}

func TestSpecsThatAreRefused(t *testing.T) {
	b := newBox(t)
	for name, change := range map[string]func(*supervisor.ProcessSpec){
		"no command":           func(s *supervisor.ProcessSpec) { s.Argv = nil },
		"empty command":        func(s *supervisor.ProcessSpec) { s.Argv = supervisor.Texts("") },
		"NUL in argv":          func(s *supervisor.ProcessSpec) { s.Argv = supervisor.Texts("a\x00b") },
		"env without a name":   func(s *supervisor.ProcessSpec) { s.Env = supervisor.Texts("=x") },
		"relative directory":   func(s *supervisor.ProcessSpec) { s.Dir = "tmp" },
		"uid of process 1":     func(s *supervisor.ProcessSpec) { s.Identity.UID = 0 },
		"group of a tree":      func(s *supervisor.ProcessSpec) { s.Identity.Groups = []uint32{61184} },
		"gid of a tree":        func(s *supervisor.ProcessSpec) { s.Identity.GID = 65279 },
		"id of another form":   func(s *supervisor.ProcessSpec) { s.ID = "../x" },
		"unknown mode":         func(s *supervisor.ProcessSpec) { s.Output = "loud" },
		"unknown limit":        func(s *supervisor.ProcessSpec) { s.Rlimits = []supervisor.Rlimit{{Name: "luck"}} },
		"buffer of a gigabyte": func(s *supervisor.ProcessSpec) { s.Buffer = 1 << 30 },
		"negative timeout":     func(s *supervisor.ProcessSpec) { s.Timeout = -1 },
		"argument too long":    func(s *supervisor.ProcessSpec) { s.Argv = supervisor.Texts("true", strings.Repeat("x", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			spec := command("true")
			change(&spec)
			_, err := b.Start(within(t, 5*time.Second), spec)
			require.Equal(t, fault.Invalid, fault.CodeOf(err), "%v", err)
		})
	}
}

func TestSameIDTwice(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 10*time.Second)
	spec := command("sleep", "60")
	spec.ID = schemas.NewID()
	p, err := b.Start(ctx, spec)
	require.NoError(t, err)
	_, err = b.Start(ctx, spec)
	require.Equal(t, fault.Conflict, fault.CodeOf(err))
	require.Equal(t, fault.Conflict, fault.CodeOf(p.Forget(ctx)), "it runs")

	p, err = b.Attach(ctx, spec.ID, supervisor.Offsets{})
	require.NoError(t, err)
	require.NoError(t, p.Stop(ctx, 0))
	_, err = p.Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Forget(ctx))
	require.NoError(t, p.Forget(ctx), "twice")
	_, err = b.Attach(ctx, spec.ID, supervisor.Offsets{})
	require.Equal(t, fault.NotFound, fault.CodeOf(err))
}

func TestStdin(t *testing.T) {
	b := newBox(t)
	t.Run("to the end, and half closed", func(t *testing.T) {
		in := bytes.Repeat([]byte("0123456789abcde\n"), 512<<10) // 8 MiB
		sum := uint64(0)
		for _, c := range in {
			sum = sum*31 + uint64(c)
		}
		res, err := b.Run(within(t, 30*time.Second), command("/payload", "count"), in, 1<<10)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d %d\n", len(in), sum), string(res.Stdout))
	})
	t.Run("output goes on after the input's end", func(t *testing.T) {
		res, err := b.Run(within(t, 10*time.Second), shell("cat; sleep 0.05; echo more"), []byte("first\n"), 1<<10)
		require.NoError(t, err)
		require.Equal(t, "first\nmore\n", string(res.Stdout))
	})
	t.Run("a process that does not read it", func(t *testing.T) {
		res, err := b.Run(within(t, 10*time.Second), shell("exec <&-; sleep 0.1; echo done"), make([]byte, 4<<20), 1<<10)
		require.NoError(t, err)
		require.Equal(t, "done\n", string(res.Stdout))
	})
	t.Run("a stuck writer holds up neither signals nor the next writer", func(t *testing.T) {
		ctx := within(t, 10*time.Second)
		spec := command("sleep", "60")
		spec.Stdin = true
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		err = p.WriteStdin(short, make([]byte, 1<<20))
		require.Equal(t, fault.Deadline, fault.CodeOf(err), "%v", err)
		other, err := b.Attach(ctx, p.ID(), supervisor.Offsets{})
		require.NoError(t, err)
		require.NoError(t, other.CloseStdin(ctx))
		require.NoError(t, other.CloseStdin(ctx), "twice")
		require.Equal(t, fault.Conflict, fault.CodeOf(other.WriteStdin(ctx, []byte("x"))))
		require.NoError(t, p.Stop(ctx, 0))
		require.NoError(t, p.Close())
		require.NoError(t, other.Close())
	})
	t.Run("none was asked for", func(t *testing.T) {
		ctx := within(t, 10*time.Second)
		p, err := b.Start(ctx, command("sleep", "60"))
		require.NoError(t, err)
		require.Equal(t, fault.Conflict, fault.CodeOf(p.WriteStdin(ctx, []byte("x"))))
		require.NoError(t, p.Stop(ctx, 0))
		require.NoError(t, p.Close())
	})
}

func TestRlimits(t *testing.T) {
	b := newBox(t)
	spec := shell("ulimit -n; ulimit -Hn; ulimit -c; ulimit -v; ulimit -t")
	spec.Rlimits = []supervisor.Rlimit{
		{Name: "nofile", Soft: 111, Hard: 222}, {Name: "core"}, {Name: "cpu", Soft: 33, Hard: 33},
		{Name: "as", Soft: 64 << 20, Hard: 64 << 20},
	}
	require.Equal(t, "111\n222\n0\n65536\n33\n", string(b.run(spec).Stdout))

	// Without limits of its own a process has the sandbox's; with others, too.
	plain := b.output("sh", "-c", "ulimit -n; ulimit -Hn")
	spec = shell("ulimit -n; ulimit -Hn")
	spec.Rlimits = []supervisor.Rlimit{{Name: "core"}}
	require.Equal(t, plain, strings.TrimSpace(string(b.run(spec).Stdout)))
	require.True(t, strings.HasPrefix(plain, "1024\n"), plain)

	spec = shell("i=0; while :; do i=$((i+1)); done")
	spec.Rlimits = []supervisor.Rlimit{{Name: "cpu", Soft: 1, Hard: 1}}
	res := b.run(spec)
	require.Equal(t, "SIGKILL", res.Exit.Signal, "%+v", res.Exit)
	require.Equal(t, supervisor.ReasonSignaled, res.Exit.Reason)
}

func TestList(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 10*time.Second)
	spec := shell("echo hello; sleep 60")
	spec.Labels = map[string]string{"attempt": "3"}
	p, err := b.Start(ctx, spec)
	require.NoError(t, err)
	ended, err := b.Start(ctx, command("false"))
	require.NoError(t, err)
	_, err = ended.Wait(ctx)
	require.NoError(t, err)
	ev, err := p.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(ev.Data))

	l, err := b.List(ctx)
	require.NoError(t, err)
	require.Len(t, l, 2)
	require.Equal(t, p.ID(), l[0].ID)
	require.Equal(t, p.PID(), l[0].PID)
	require.Nil(t, l[0].Exit)
	require.Equal(t, "3", l[0].Labels["attempt"])
	require.EqualValues(t, 6, l[0].End.Stdout)
	require.Equal(t, 1, l[1].Exit.Code)

	u, err := b.Usage(ctx)
	require.NoError(t, err)
	require.GreaterOrEqual(t, u.PIDs, 2)
	require.Positive(t, u.MemoryBytes)
	require.Less(t, u.InitRSS, int64(16<<20))
	require.NoError(t, b.KillAll(ctx, 0))
	x, err := p.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, supervisor.ReasonKilled, x.Reason)
	require.NoError(t, p.Close())
	require.NoError(t, ended.Close())
}
