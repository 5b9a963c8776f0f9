package containerd_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

var machine *nodetest.Machine

func TestMain(m *testing.M) {
	os.Exit(nodetest.Main(m, &machine, func() error { return goleak.Find() }))
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func pid(t testing.TB) proc.Process {
	p, err := proc.Read(filepath.Join(machine.RunDir, "containerd.pid"))
	require.NoError(t, err)
	return p
}

func TestAPrivateDaemonIsFoundAgainAndStartedAgain(t *testing.T) {
	e := machine.Engine(t)
	first := pid(t)
	require.True(t, e.Private())
	require.NoError(t, e.Close())
	require.True(t, first.Alive(), "it survives whoever started it")
	sid, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", first.PID))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(first.PID), strings.Fields(strings.SplitN(string(sid), ") ", 2)[1])[3], "in a session of its own")

	e = machine.Engine(t)
	require.Equal(t, first, pid(t), "the same one")
	require.NoError(t, first.Signal(syscall.SIGKILL))
	require.Eventually(t, func() bool {
		p, err := proc.Read(filepath.Join(machine.RunDir, "containerd.pid"))
		return err == nil && p != first && p.Alive()
	},
		20*time.Second, 5*time.Millisecond)
	require.NoError(t, e.Ready(within(t, 20*time.Second)))

	// A pid file that names a process which is not it: somebody else has the pid now.
	second := pid(t)
	require.NoError(t, e.Close())
	require.NoError(t, second.Signal(syscall.SIGKILL))
	require.NoError(t, second.Wait(within(t, 10*time.Second)))
	me, err := proc.Identify(os.Getpid())
	require.NoError(t, err)
	stranger := me.Process
	stranger.Start--
	require.NoError(t, proc.Write(filepath.Join(machine.RunDir, "containerd.pid"), stranger))
	e = machine.Engine(t)
	require.NotEqual(t, stranger, pid(t))
	require.NoError(t, e.Ready(within(t, 20*time.Second)))
}

func TestARunningDaemonIsAdopted(t *testing.T) {
	private := machine.Engine(t)
	cfg := machine.Config
	cfg.Socket, cfg.Containerd, cfg.Shim = private.Socket(), "", ""
	cfg.RunDir = t.TempDir()
	e, err := containerd.Open(within(t, 20*time.Second), cfg)
	require.NoError(t, err)
	require.False(t, e.Private())
	_, err = e.Image(within(t, time.Minute), "base")
	require.NoError(t, err)
	require.NoError(t, e.Stop(within(t, 10*time.Second)))
	require.True(t, pid(t).Alive(), "what was adopted is not ours to end")
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	machine.Need(t)
	for name, c := range map[string]struct {
		change func(*containerd.Config)
		code   fault.Code
		says   string
	}{
		"no containerd":   {func(c *containerd.Config) { c.Containerd = "" }, fault.Unavailable, "make setup"},
		"no runc":         {func(c *containerd.Config) { c.Runc = "/no/such/runc" }, fault.Unavailable, "WEFT_RUNC_BIN"},
		"not a program":   {func(c *containerd.Config) { c.Shim = "/etc/passwd" }, fault.Unavailable, "make setup"},
		"nobody listens":  {func(c *containerd.Config) { c.Socket = "/no/such.sock" }, fault.Unavailable, "does not answer"},
		"a relative path": {func(c *containerd.Config) { c.Dir = "relative" }, fault.Invalid, "absolute"},
		"a long path":     {func(c *containerd.Config) { c.RunDir = "/run/" + strings.Repeat("long/", 20) }, fault.Invalid, "too long"},
		"one that ends":   {func(c *containerd.Config) { c.Containerd, c.RunDir = "/bin/true", "/run/weft-test-none" }, fault.Unavailable, "containerd.log"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := machine.Config
			c.change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err := containerd.Open(ctx, cfg)
			require.True(t, fault.Is(err, c.code), "%v", err)
			_, text := fault.Public(err)
			require.Contains(t, text, c.says)
		})
	}
	require.NoError(t, os.RemoveAll("/run/weft-test-none"))
}

func TestImages(t *testing.T) {
	e := machine.Engine(t)
	base, err := toolchain.Image("base")
	require.NoError(t, err)
	one, err := e.Image(within(t, time.Minute), "base")
	require.NoError(t, err)
	require.NotEmpty(t, one.Parent)
	again, err := e.Image(within(t, time.Minute), base)
	require.NoError(t, err)
	require.Equal(t, one, again, "by its path it is the same")
	require.Contains(t, e.Archives(), "base")

	for ref, code := range map[string]fault.Code{
		"/etc/passwd":                            fault.Denied,
		filepath.Dir(base) + "/../../x.tar":      fault.Denied,
		filepath.Dir(base) + "/no-such.tar":      fault.NotFound,
		"UPPER CASE":                             fault.Invalid,
		"":                                       fault.Invalid,
		"no-such-registry.invalid/image:1":       fault.Denied,
		"no-such-archive":                        fault.Unavailable,
		"no-such-archive:1":                      fault.Denied,
		"../base":                                fault.Invalid,
		"no-such-registry.invalid/x@sha256:1234": fault.Invalid,
	} {
		_, err := e.Image(within(t, 20*time.Second), ref)
		require.True(t, fault.Is(err, code), "%q: %v", ref, err)
	}
}

// An archive that is replaced is imported anew; one that is none is refused, and its failure is not remembered.
func TestAnArchiveThatChanges(t *testing.T) {
	machine.Need(t)
	cfg := machine.Config
	cfg.ImageDirs = []string{t.TempDir()}
	e, err := containerd.Open(within(t, time.Minute), cfg)
	require.NoError(t, err)
	defer e.Close()
	path := filepath.Join(cfg.ImageDirs[0], "mine.tar")
	require.NoError(t, os.WriteFile(path, []byte("this is no archive"), 0o644))
	_, err = e.Image(within(t, time.Minute), "mine")
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	parents := map[string]bool{}
	for _, name := range []string{"base", "python"} {
		from, err := toolchain.Image(name)
		require.NoError(t, err)
		copyFile(t, from, path)
		i, err := e.Image(within(t, time.Minute), "mine")
		require.NoError(t, err)
		parents[i.Parent] = true
	}
	require.Len(t, parents, 2)
	images, err := e.Client().ImageService().List(containerd.InNamespace(within(t, 10*time.Second)), fmt.Sprintf("labels.%q==%q", "dev.weft/archive", path))
	require.NoError(t, err)
	require.Len(t, images, 1, "the earlier one is forgotten")
}

func copyFile(t *testing.T, from, to string) {
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	tmp := to + ".new"
	out, err := os.Create(tmp)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, os.Rename(tmp, to))
}
