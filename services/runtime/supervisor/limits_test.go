package supervisor_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// TestOutOfMemory fills the sandbox's memory, by one process and by many small ones: the kernel ends
// payload, and process 1 goes on.
func TestOutOfMemory(t *testing.T) {
	b := newBox(t, withMemory(96<<20))
	ctx := within(t, 60*time.Second)
	res := b.run(command("/payload", "eat", "500"))
	require.Equal(t, "SIGKILL", res.Exit.Signal)
	require.Equal(t, "back", b.output("echo", "back"))

	p, err := b.Start(ctx, shell("for i in $(seq 60); do { /payload eat 4 || echo killed; } & done; wait"))
	require.NoError(t, err)
	for killed := 0; killed < 20; { // only some twenty of the sixty fit
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		require.Nil(t, ev.Exit)
		killed += strings.Count(string(ev.Data), "killed\n")
	}
	require.NoError(t, p.Stop(ctx, 0))
	require.NoError(t, p.Close())
	require.NoError(t, b.KillAll(ctx, 0))
	require.Equal(t, "back", b.output("echo", "back"))
	b.alone()
}

// TestOutputDoesNotUseUpMemory keeps much output of many processes in a small sandbox.
func TestOutputDoesNotUseUpMemory(t *testing.T) {
	b := newBox(t, withMemory(64<<20))
	ctx := within(t, 60*time.Second)
	var all []*supervisor.Process
	for range 40 {
		spec := command("/payload", "zeros", fmt.Sprint(16<<20))
		spec.Output, spec.Buffer = supervisor.OutputRing, 16<<20
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		all = append(all, p)
	}
	for _, p := range all {
		x, err := p.Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 16<<20, x.Stdout)
		require.Zero(t, x.Code)
		require.NoError(t, p.Forget(ctx))
	}
	u, err := b.Usage(ctx)
	require.NoError(t, err)
	require.Less(t, u.InitRSS, int64(24<<20))
}

// TestFrozen stops the whole sandbox for a while in the middle of things.
func TestFrozen(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	runc := func(args ...string) {
		args = append([]string{"--root", filepath.Join(b.bundle, "runc")}, args...)
		out, err := exec.Command(b.runc, append(args, b.id)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	const size = 50_000_000
	p, err := b.Start(ctx, command("/payload", "pattern", fmt.Sprint(size)))
	require.NoError(t, err)
	c := &checker{t: t}
	frozen := false
	for {
		ev, err := p.Next(ctx)
		require.NoError(t, err)
		if ev.Exit != nil {
			break
		}
		c.take(ev)
		if c.at > size/2 && !frozen {
			frozen = true
			runc("pause")
			_, err := b.List(within(t, 300*time.Millisecond))
			require.Equal(t, fault.Deadline, fault.CodeOf(err))
			runc("resume")
		}
	}
	require.EqualValues(t, size, c.at)
	require.NoError(t, p.Close())
}
