package supervisor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func TestTerminal(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 20*time.Second)
	start := func(script string) *supervisor.Process {
		spec := shell(script)
		spec.PTY = &supervisor.Size{Rows: 30, Cols: 100}
		p, err := b.Start(ctx, spec)
		require.NoError(t, err)
		return p
	}
	t.Run("it is the payload's own, of the size that was asked for", func(t *testing.T) {
		p := start("stty size; stat -c 'owner %u mode %a' $(tty); echo error >&2; test -t 0 && test -t 1 && test -t 2 && echo tty; echo x >/dev/tty && echo ctty")
		b.read(p, "ctty")
		require.NoError(t, p.Close())
		p, err := b.Attach(ctx, p.ID(), supervisor.Offsets{})
		require.NoError(t, err)
		var said strings.Builder
		for {
			ev, err := p.Next(ctx)
			require.NoError(t, err)
			if ev.Exit != nil {
				require.Zero(t, ev.Exit.Code)
				break
			}
			require.Equal(t, supervisor.Stdout, ev.Stream)
			said.Write(ev.Data)
		}
		for _, want := range []string{"30 100\r\n", "owner 1000 mode 620", "error\r\n", "tty\r\n"} {
			require.Contains(t, said.String(), want)
		}
		require.NoError(t, p.Forget(ctx))
	})
	t.Run("resize tells the program", func(t *testing.T) {
		p := start("trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done")
		b.read(p, "ready")
		require.NoError(t, p.Resize(ctx, supervisor.Size{Rows: 40, Cols: 120}))
		b.read(p, "40 120")
		require.NoError(t, p.Stop(ctx, 0))
		require.NoError(t, p.Close())
	})
	t.Run("control characters", func(t *testing.T) {
		p := start("trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.01; done")
		b.read(p, "ready")
		require.NoError(t, p.WriteStdin(ctx, []byte{3}))
		b.read(p, "interrupted")
		x, err := p.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, 9, x.Code)
		require.NoError(t, p.Close())
	})
	t.Run("end of input", func(t *testing.T) {
		p := start("cat; echo over")
		require.NoError(t, p.WriteStdin(ctx, []byte("hello\n")))
		b.read(p, "hello\r\nhello\r\n")
		require.NoError(t, p.CloseStdin(ctx))
		b.read(p, "over")
		_, err := p.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, fault.Conflict, fault.CodeOf(p.Resize(ctx, supervisor.Size{Rows: 1, Cols: 1})))
		require.NoError(t, p.Close())
	})
	t.Run("all of a long output", func(t *testing.T) {
		p := start("seq 1 50000")
		n := 0
		for {
			ev, err := p.Next(ctx)
			require.NoError(t, err)
			if ev.Exit != nil {
				break
			}
			n += strings.Count(string(ev.Data), "\n")
		}
		require.Equal(t, 50000, n)
		require.NoError(t, p.Close())
	})
	t.Run("none", func(t *testing.T) {
		p, err := b.Start(ctx, command("sleep", "60"))
		require.NoError(t, err)
		require.Equal(t, fault.Conflict, fault.CodeOf(p.Resize(ctx, supervisor.Size{Rows: 1, Cols: 1})))
		require.NoError(t, p.Stop(ctx, 0))
		require.NoError(t, p.Close())
	})
}
