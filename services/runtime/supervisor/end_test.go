package supervisor_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// alone asserts that nothing but process 1 is left in the sandbox.
func (b *box) alone() {
	b.t.Helper()
	var u supervisor.Usage
	require.Eventually(b.t, func() bool {
		var err error
		u, err = b.Usage(within(b.t, 5*time.Second))
		return err == nil && u.PIDs == 1
	}, time.Minute, 10*time.Millisecond, "processes left: %+v", &u)
}

// read follows p until want has been said.
func (b *box) read(p *supervisor.Process, want string) {
	b.t.Helper()
	var said strings.Builder
	for !strings.Contains(said.String(), want) {
		ev, err := p.Next(within(b.t, 10*time.Second))
		require.NoError(b.t, err)
		require.Nil(b.t, ev.Exit, "it ended, having said %q", said.String())
		said.Write(ev.Data)
	}
}

func TestTimeout(t *testing.T) {
	b := newBox(t)
	t.Run("SIGTERM is enough", func(t *testing.T) {
		spec := shell("trap 'echo bye; exit 3' TERM; sleep 60 & wait")
		spec.Timeout, spec.Grace = 2*time.Second, 2*time.Minute // the shell has set its trap by then
		t0 := time.Now()
		res := b.run(spec)
		require.Less(t, time.Since(t0), 30*time.Second)
		require.Equal(t, supervisor.ReasonTimeout, res.Exit.Reason)
		require.Equal(t, 3, res.Exit.Code)
		require.Equal(t, "bye\n", string(res.Stdout))
		b.alone()
	})
	t.Run("SIGTERM is ignored", func(t *testing.T) {
		spec := command("/payload", "ignore")
		spec.Timeout, spec.Grace = 200*time.Millisecond, 200*time.Millisecond
		res := b.run(spec)
		require.Equal(t, supervisor.ReasonTimeout, res.Exit.Reason)
		require.Equal(t, "SIGKILL", res.Exit.Signal)
		require.Equal(t, 137, res.Exit.Code)
		b.alone()
	})
	t.Run("it ends before", func(t *testing.T) {
		spec := command("true")
		spec.Timeout = 20 * time.Second
		require.Equal(t, supervisor.ReasonExited, b.run(spec).Exit.Reason)
	})
}

func TestTrees(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	// 1 + 3 + 9 + 27 processes, each in a session of its own, half of them orphans.
	start := func() *supervisor.Process {
		p, err := b.Start(ctx, command("/payload", "tree", "3", "3"))
		require.NoError(t, err)
		for up := 0; up < 40; {
			ev, err := p.Next(ctx)
			require.NoError(t, err)
			require.Nil(t, ev.Exit)
			up += strings.Count(string(ev.Data), "up\n")
		}
		return p
	}
	for _, grace := range []time.Duration{0, 100 * time.Millisecond} {
		t.Run("stop, grace "+grace.String(), func(t *testing.T) {
			bystander, err := b.Start(ctx, command("sleep", "60"))
			require.NoError(t, err)
			p := start()
			require.NoError(t, p.Stop(ctx, grace))
			u, err := b.Usage(ctx)
			require.NoError(t, err)
			require.Equal(t, 2, u.PIDs, "the bystander, and process 1")
			x, err := p.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, supervisor.ReasonKilled, x.Reason)
			require.False(t, x.Leftovers)
			require.NoError(t, p.Stop(ctx, 0), "twice")
			require.NoError(t, p.Forget(ctx))
			require.NoError(t, bystander.Stop(ctx, 0))
			require.NoError(t, bystander.Close())
			b.alone()
		})
	}
	t.Run("signal to the whole tree", func(t *testing.T) {
		p := start()
		require.NoError(t, p.Signal(ctx, syscall.SIGKILL, supervisor.TargetTree))
		x, err := p.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, supervisor.ReasonSignaled, x.Reason)
		require.NoError(t, p.Close())
		b.alone()
	})
	t.Run("leftovers are killed when asked for", func(t *testing.T) {
		spec := shell("setsid sleep 60 & (setsid sleep 60 &) ; exit 5")
		spec.KillLeftovers = true
		require.Equal(t, 5, b.run(spec).Exit.Code)
		b.alone()
	})
	t.Run("and live on else, without holding up anybody", func(t *testing.T) {
		t0 := time.Now()
		res := b.run(shell("(while :; do echo x; sleep 0.01; done) & echo started"))
		require.Less(t, time.Since(t0), 30*time.Second)
		require.Contains(t, string(res.Stdout), "started\n")
		u, err := b.Usage(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, u.PIDs, 2)
		require.NoError(t, b.KillAll(ctx, 50*time.Millisecond))
		b.alone()
	})
	t.Run("zombies are reaped", func(t *testing.T) {
		b.run(shell("i=0; while [ $i -lt 50 ]; do (sleep 0.01 & ) ; i=$((i+1)); done"))
		b.alone()
	})
}

func TestForkBomb(t *testing.T) {
	for name, spec := range map[string]supervisor.ProcessSpec{
		"in sessions of their own": command("/payload", "bomb", "sessions"),
		"orphans":                  command("/payload", "bomb", "orphans"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, withPIDs(300))
			ctx := within(t, 3*minute)
			p, err := b.Start(ctx, spec)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				q, err := b.Start(ctx, command("true"))
				if err == nil {
					_ = q.Close()
				}
				return fault.Is(err, fault.Exhausted)
			}, 2*minute, 10*time.Millisecond, "the limit is met, and said so")
			t0 := time.Now()
			require.NoError(t, p.Stop(ctx, 0))
			t.Logf("some 230 processes ended in %v", time.Since(t0))
			x, err := p.Wait(ctx)
			require.NoError(t, err)
			require.False(t, x.Leftovers)
			require.NoError(t, p.Close())
			require.Equal(t, "back", b.output("echo", "back"))
			b.alone()
		})
	}
}

func TestSignals(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 20*time.Second)
	p, err := b.Start(ctx, shell("trap 'echo usr1' USR1; trap 'echo hup' HUP; echo ready; while :; do sleep 0.01; done"))
	require.NoError(t, err)
	b.read(p, "ready")
	require.NoError(t, p.Signal(ctx, syscall.SIGUSR1, supervisor.TargetProcess))
	b.read(p, "usr1")
	require.NoError(t, p.Signal(ctx, syscall.SIGHUP, supervisor.TargetProcess))
	b.read(p, "hup")
	require.Equal(t, fault.Invalid, fault.CodeOf(p.Signal(ctx, 99, supervisor.TargetProcess)))
	require.NoError(t, p.Signal(ctx, syscall.SIGKILL, supervisor.TargetGroup))
	x, err := p.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "SIGKILL", x.Signal)
	require.Equal(t, fault.Conflict, fault.CodeOf(p.Signal(ctx, syscall.SIGTERM, supervisor.TargetProcess)))
	require.NoError(t, p.Close())
	b.alone()
}
