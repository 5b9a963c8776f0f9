package supervisor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// box is a real sandbox of the level standard under runc: a user namespace, every other namespace, and
// no capabilities but process 1's. Its root is read-only; /usr is the machine's own.
type box struct {
	*supervisor.Sandbox
	t      testing.TB
	server *supervisor.Server
	dir    string // of the server
	id     string
	runc   string
	bundle string
	pids   int64
	memory int64
	pinned bool
	extra  []specs.Mount
}

const (
	firstID = 700 << 20 // host id of the sandboxes' uid 0
	payload = 1000      // uid inside
)

var owner = supervisor.Owner{UID: firstID, GID: firstID}

type boxOption func(*box)

// withPIDs limits the processes.
func withPIDs(n int64) boxOption { return func(b *box) { b.pids = n } }

// withMemory limits the memory.
func withMemory(bytes int64) boxOption { return func(b *box) { b.memory = bytes } }

// withTmpfs mounts another file system that payload may write.
func withTmpfs(path string) boxOption {
	return func(b *box) {
		b.extra = append(b.extra, specs.Mount{Destination: path, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}})
	}
}

// withPinned makes the user and network namespaces first, as a pair that nothing has set up yet.
func withPinned() boxOption { return func(b *box) { b.pinned = true } }

func newBox(t testing.TB, opts ...boxOption) *box {
	t.Helper()
	b := &box{t: t, id: schemas.NewID(), pids: 4096, memory: 1 << 30}
	var err error
	b.runc, err = toolchain.Find("runc")
	needs.All(t, err, needs.RootMissing())
	// runc opens the root from inside the user namespace: t.TempDir's parents would not let it through.
	b.bundle, err = os.MkdirTemp(filepath.Dir(initBinary), "bundle")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(b.bundle, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(b.bundle) })
	b.dir = filepath.Join(b.bundle, "sandboxes")
	b.listen()
	for _, o := range opts {
		o(b)
	}
	spec := b.spec()
	spec.Linux.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &b.pids}, Memory: &specs.LinuxMemory{Limit: &b.memory}}
	if b.pinned {
		b.joinPinned(spec)
	}
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(b.bundle, "config.json"), raw, 0o600))
	stderr, err := os.Create(filepath.Join(b.bundle, "stderr"))
	require.NoError(t, err)
	defer stderr.Close()
	run := exec.Command(b.runc, "--root", filepath.Join(b.bundle, "runc"), "run", "--detach", "--bundle", b.bundle, b.id)
	run.Stderr = stderr
	err = run.Run()
	t.Cleanup(func() {
		out, derr := exec.Command(b.runc, "--root", filepath.Join(b.bundle, "runc"), "delete", "--force", b.id).CombinedOutput()
		if derr != nil {
			t.Errorf("runc delete: %v: %s", derr, out)
		}
		_ = b.server.Close()
		if t.Failed() {
			said, _ := os.ReadFile(stderr.Name())
			t.Logf("weft-init said: %s", said)
		}
	})
	said, _ := os.ReadFile(stderr.Name())
	require.NoError(t, err, string(said))
	require.NoError(t, b.WaitConnected(within(t, 10*time.Second)))
	return b
}

// listen makes a server on the directory, as a new node process would.
func (b *box) listen() {
	b.t.Helper()
	var err error
	b.server, err = supervisor.NewServer(b.dir, supervisor.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b.t, err)
	b.Sandbox, err = b.server.Add(b.id, owner)
	require.NoError(b.t, err)
}

// restart is the end of the node's process, and its next one.
func (b *box) restart() {
	b.t.Helper()
	require.NoError(b.t, b.server.Close())
	b.listen()
}

func (b *box) spec() *specs.Spec {
	b.t.Helper()
	root := filepath.Join(b.bundle, "rootfs")
	for _, d := range []string{"usr", "proc", "dev", "sys", "tmp", "etc", ".weft/run", "payload"} {
		require.NoError(b.t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	require.NoError(b.t, os.Remove(filepath.Join(root, "payload")))
	for _, f := range []string{".weft/init", "payload"} {
		require.NoError(b.t, os.WriteFile(filepath.Join(root, f), nil, 0o755))
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		require.NoError(b.t, os.Symlink("usr/"+l, filepath.Join(root, l)))
	}
	launch := b.Launch(initBinary, supervisor.DefaultForwards()...).LimitPIDs(b.pids).LimitMemory(b.memory)
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}},
		{Destination: "/usr", Type: "bind", Source: "/usr", Options: []string{"rbind", "ro", "nosuid", "nodev"}},
		{Destination: "/payload", Type: "bind", Source: payloadBinary, Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	for _, m := range b.extra {
		require.NoError(b.t, os.MkdirAll(filepath.Join(root, m.Destination), 0o755))
		mounts = append(mounts, m)
	}
	for _, m := range launch.Mounts {
		mounts = append(mounts, specs.Mount{Destination: m.Destination, Type: "bind", Source: m.Source, Options: []string{"bind", "ro", "nosuid", "nodev", "private"}})
	}
	idMap := []specs.LinuxIDMapping{{ContainerID: 0, HostID: firstID, Size: 65536}}
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: launch.Args, Env: launch.Env, Cwd: "/", NoNewPrivileges: true,
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096}},
			Capabilities: &specs.LinuxCapabilities{Bounding: launch.Capabilities, Effective: launch.Capabilities, Permitted: launch.Capabilities},
		},
		Root:   &specs.Root{Path: "rootfs", Readonly: true},
		Mounts: mounts,
		Linux: &specs.Linux{
			UIDMappings: idMap, GIDMappings: idMap, CgroupsPath: "/weft-test-" + b.id,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.UserNamespace},
			},
		},
	}
}

// joinPinned lets the container join namespaces that a child of the test holds.
func (b *box) joinPinned(spec *specs.Spec) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}}
	holder := exec.Command("/bin/cat")
	hold, err := holder.StdinPipe()
	require.NoError(b.t, err)
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	require.NoError(b.t, holder.Start())
	b.t.Cleanup(func() { _ = hold.Close(); _ = holder.Wait() })
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = nil, nil
	for i := range spec.Linux.Namespaces {
		switch n := &spec.Linux.Namespaces[i]; n.Type {
		case specs.UserNamespace:
			n.Path = fmt.Sprintf("/proc/%d/ns/user", holder.Process.Pid)
		case specs.NetworkNamespace:
			n.Path = fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
		}
	}
}

// as is who the tests' payload runs as.
var as = supervisor.Identity{UID: payload, GID: payload}

func command(argv ...string) supervisor.ProcessSpec {
	return supervisor.ProcessSpec{
		Argv: supervisor.Texts(argv...), Env: supervisor.Texts("PATH=/usr/bin:/bin:/usr/sbin", "HOME=/tmp", "LC_ALL=C"),
		Dir: "/tmp", Identity: as,
	}
}

func shell(script string) supervisor.ProcessSpec { return command("sh", "-c", script) }

// run runs a command to its end.
func (b *box) run(spec supervisor.ProcessSpec) supervisor.Result {
	b.t.Helper()
	res, err := b.Run(within(b.t, 30*time.Second), spec, nil, 1<<20)
	require.NoError(b.t, err)
	return res
}

// output runs a command that must succeed, and gives what it says.
func (b *box) output(argv ...string) string {
	b.t.Helper()
	res := b.run(command(argv...))
	require.Zero(b.t, res.Exit.Code, "%v: %s%s%s", argv, res.Stdout, res.Stderr, res.Exit.Message)
	return strings.TrimSpace(string(res.Stdout))
}

// within is a context for the rest of the test, or until the time is over.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*d) // a busy machine is no failure
	t.Cleanup(cancel)
	return ctx
}
