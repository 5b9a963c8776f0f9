package sandbox

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// traces lists all that there is of this machine's sandboxes, by what the kernel, containerd and the
// disk say, not by what the node believes.
func traces(t testing.TB, n *Node) []string {
	t.Helper()
	var found []string
	left, err := n.everything(t.Context())
	require.NoError(t, err)
	for id, where := range left {
		found = append(found, fmt.Sprint(id, where))
	}
	snapshots, err := n.engine.Snapshots(t.Context(), labelOwner, n.owner)
	require.NoError(t, err)
	found = append(found, snapshots...)
	points, err := mounts.Below(machine.RunDir)
	require.NoError(t, err)
	for _, p := range points {
		if p != n.base() {
			found = append(found, "mount "+p)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, p := range processes {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		if slices.ContainsFunc(spares(t), func(id string) bool { return strings.Contains(string(line), "\x00-id\x00"+id+"\x00") }) {
			continue // it serves nobody yet
		}
		if strings.Contains(string(groups), "/weft/"+n.owner) || strings.Contains(string(line), machine.RunDir) && !strings.Contains(string(line), "config.toml") {
			found = append(found, fmt.Sprintf("process %s %q", p, line))
		}
	}
	for _, dir := range []string{"sb", "sup", "ranges", "runc/weft", "state/io.containerd.runtime.v2.task/weft"} {
		entries, err := os.ReadDir(filepath.Join(machine.RunDir, dir))
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		for _, e := range entries {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/weft/" + n.owner + "/*")
	require.NoError(t, err)
	for _, g := range groups {
		if st, err := os.Stat(g); err == nil && st.IsDir() {
			found = append(found, g)
		}
	}
	return found
}

// requireNothing waits until no trace is left: a shim takes a moment to end after its last container.
func requireNothing(t testing.TB, n *Node) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assertT) { require.Empty(c, traces(t, n)) }, time.Minute, 20*time.Millisecond)
}

func TestASandboxLeavesNothingBehind(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	require.NotEmpty(t, traces(t, n))
	exit, out := sh(t, s, "id -u; hostname 2>/dev/null || cat /etc/hostname")
	require.Equal(t, "1000\nplanner\n", out)
	require.Zero(t, exit.Code)
	// A process that escaped its session, and one that ignores signals, end with the sandbox.
	exit, out = sh(t, s, `(trap '' TERM HUP INT; setsid sleep 1000 &) >/dev/null 2>&1; true`)
	require.Zero(t, exit.Code, out)
	_, err := n.Create(within(t, 10*time.Second), s.Spec())
	require.True(t, fault.Is(err, fault.Conflict), "%v", err)
	exit, _ = sh(t, s, "true")
	require.Zero(t, exit.Code, "the loser of a conflict destroys nothing")

	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	<-s.Gone()
	requireNothing(t, n)
	require.NoError(t, s.Destroy(within(t, 20*time.Second)), "twice is no error")
	_, held := n.Get(s.ID())
	require.False(t, held)
}

func TestACreateThatFailsLeavesNothingBehind(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	spec := testSpec()
	spec.Image = "no-such-template"
	_, err := n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	requireNothing(t, n)

	spec = testSpec()
	spec.Level = "paranoid"
	_, err = n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	requireNothing(t, n)

	for name, change := range map[string]func(*Spec){
		"id":        func(s *Spec) { s.ID = "../../etc" },
		"tenant":    func(s *Spec) { s.Tenant = "Acme" },
		"principal": func(s *Spec) { s.Principal = "a.b" },
		"task":      func(s *Spec) { s.Task = "*" },
		"memory":    func(s *Spec) { s.Resources.MemoryBytes = 1000 },
	} {
		spec := testSpec()
		change(&spec)
		_, err := n.Create(within(t, 30*time.Second), spec)
		require.True(t, fault.Is(err, fault.Invalid), "%s: %v", name, err)
	}

	// A process 1 that ends at once: its last words are in the error.
	broken := newBrokenNode(t, n.engine)
	_, err = broken.Create(within(t, 30*time.Second), testSpec())
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	requireNothing(t, n)

	ctx, cancel := context.WithCancel(within(t, 30*time.Second))
	cancel()
	_, err = n.Create(ctx, testSpec())
	require.Error(t, err)
	requireNothing(t, n)
}

// newBrokenNode is a node whose weft-init is something else.
func newBrokenNode(t *testing.T, e *containerd.Engine) *Node {
	n, err := Open(e, Config{DataDir: machine.DataDir, RunDir: machine.RunDir, Init: "/bin/false", Forwards: supervisor.DefaultForwards(), Log: machine.Config.Log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func TestGoneTellsThatProcess1Ended(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	select {
	case <-s.Gone():
		t.Fatal("it lives")
	default:
	}
	require.NoError(t, s.init.Signal(syscall.SIGKILL))
	select {
	case <-s.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed")
	}
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
}

func TestPauseAndResume(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	p, err := s.Supervisor().Start(within(t, 10*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", "while :; do :; done"), Identity: Payload(),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	require.NoError(t, s.Pause(within(t, 10*time.Second)))
	paused, err := s.Paused()
	require.NoError(t, err)
	require.True(t, paused)
	cpu := func() time.Duration {
		u, err := s.Stats()
		require.NoError(t, err)
		return u.CPU
	}
	before := cpu()
	time.Sleep(50 * time.Millisecond) // time passes; nothing else stands for it
	require.Equal(t, before, cpu(), "a frozen sandbox uses no CPU")
	require.NoError(t, s.Resume(within(t, 10*time.Second)))
	require.Eventually(t, func() bool { return cpu() > before+10*time.Millisecond }, time.Minute, 5*time.Millisecond)
	// A frozen sandbox can be destroyed.
	require.NoError(t, s.Pause(within(t, 10*time.Second)))
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
	_, err = s.Stats()
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
}
