package filesystem

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		os.Exit(crashChild(dir))
	}
	goleak.VerifyTestMain(m)
}

// idBase is where the ids of the sandboxes of these tests begin.
const idBase = 1_000_000

// alice is who asks in most tests.
var alice = mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "alice"}

// node is who prepares and merges.
var node = mesh.Caller{Principal: "n1"}

// needRoot skips, or fails where everything has to run, without what overlays need.
func needRoot(t testing.TB) {
	t.Helper()
	needs.Root(t)
	_, err := os.Stat("/dev/loop-control")
	needs.All(t, err)
}

// holders is a table of who holds which task, in place of the workspace-manager.
type holders struct {
	mu sync.Mutex
	m  map[string]workspace.AttemptReply
}

func (h *holders) Attempt(_ context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, ok := h.m[req.Tenant+"/"+req.Workspace+"/"+req.Task]
	if !ok {
		return a, fault.New(fault.NotFound, "no task %s", req.Task)
	}
	return a, nil
}

func (h *holders) set(task string, attempt int, sandbox string, state workspace.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m["acme/demo/"+task] = workspace.AttemptReply{State: state, Attempt: attempt, Sandbox: sandbox, Node: "n1"}
}

// workspaces is a table of workspaces, in place of their log.
type workspaces map[string]workspace.Workspace

func (w workspaces) Get(_ context.Context, k records.Key) (records.Record[workspace.Workspace], error) {
	v, ok := w[k.Tenant+"/"+k.ID]
	if !ok || k.Workspace != schemas.NoWorkspace {
		return records.Record[workspace.Workspace]{}, fault.New(fault.NotFound, "no workspace %q", k.ID)
	}
	return records.Record[workspace.Workspace]{Key: k, Value: v, Sequence: 1}, nil
}

// fixture is a service on real records.
type fixture struct {
	*Service
	t       testing.TB
	ctx     context.Context
	mesh    *meshtest.Mesh
	holders *holders
	spaces  workspaces
	cfg     Config
	now     time.Time
}

func setup(t testing.TB, change ...func(*Config)) *fixture {
	needRoot(t)
	m := meshtest.Start(t, "acme", "other")
	f := &fixture{t: t, ctx: meshtest.Context(t), mesh: m, holders: &holders{m: map[string]workspace.AttemptReply{}}, now: time.Now(),
		spaces: workspaces{"acme/demo": {Name: "demo", State: "active"}, "acme/second": {Name: "second", State: "active"}, "other/demo": {Name: "demo", State: "active"}}}
	data := t.TempDir()
	for _, d := range []string{data, filepath.Dir(data)} { // the payload has to reach it; a runtime binds it instead
		require.NoError(t, os.Chmod(d, 0o711))
	}
	f.cfg = Config{DataDir: filepath.Join(data, "files"), SpoolDirs: []string{filepath.Join(data, "spool")}}.OnMesh(m.Service(schemas.Filesystem))
	f.cfg.Attempts, f.cfg.Workspaces, f.cfg.Clock = f.holders, f.spaces, func() time.Time { return f.now }
	require.NoError(t, os.Mkdir(f.cfg.SpoolDirs[0], 0o700))
	for _, c := range change {
		c(&f.cfg)
	}
	f.restart()
	t.Cleanup(func() {
		_, err := f.Held(context.Background(), node, wire.Held{})
		require.NoError(t, err)
		require.NoError(t, f.Close())
		noMounts(t, data)
	})
	return f
}

// restart replaces the service by a new one on the same directory, as a restarted process would.
func (f *fixture) restart() {
	if f.Service != nil {
		require.NoError(f.t, f.Close())
	}
	s, err := New(f.cfg)
	require.NoError(f.t, err)
	f.Service = s
}

// noMounts waits until nothing is mounted below a directory: a merge gives the overlay's disk back behind its answer.
func noMounts(t testing.TB, below string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := mounts.Below(below)
		return err == nil && len(left) == 0
	}, 30*time.Second, 10*time.Millisecond)
}

func (f *fixture) put(path, content string) wire.PutReply {
	f.t.Helper()
	r, err := f.Put(f.ctx, alice, wire.PutRequest{Path: path}, strings.NewReader(content))
	require.NoError(f.t, err)
	return r
}

func (f *fixture) get(path string) string {
	f.t.Helper()
	var b bytes.Buffer
	_, err := f.Get(f.ctx, alice, wire.GetRequest{Path: path}, &b)
	require.NoError(f.t, err)
	return b.String()
}

// files gives all files of the head, or of a snapshot.
func (f *fixture) files(snapshot ...string) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	req := wire.ListRequest{Recursive: true, Snapshot: strings.Join(snapshot, "")}
	for {
		r, err := f.List(f.ctx, alice, req)
		require.NoError(f.t, err)
		for _, e := range r.Entries {
			switch e.Type {
			case "file":
				var b bytes.Buffer
				_, err := f.Get(f.ctx, alice, wire.GetRequest{Path: e.Path, Snapshot: r.Snapshot}, &b)
				require.NoError(f.t, err)
				out[e.Path] = b.String()
			case "symlink":
				out[e.Path] = "->" + e.Target
			}
		}
		if r.Cursor == "" {
			return out
		}
		req.Cursor, req.Snapshot = r.Cursor, r.Snapshot
	}
}

// attempt is one that runs.
type attempt struct {
	f       *fixture
	task    string
	n       int
	sandbox string
	path    string
	base    string
}

// begin lets attempt n of task run, with its files prepared.
func (f *fixture) begin(task string, n int) *attempt {
	f.t.Helper()
	a := &attempt{f: f, task: task, n: n, sandbox: schemas.NewID()}
	f.holders.set(task, n, a.sandbox, workspace.Running)
	p, err := f.Prepare(f.ctx, node, a.prepare())
	require.NoError(f.t, err)
	require.EqualValues(f.t, idBase+1000, p.UID)
	a.path, a.base = p.Path, p.Base
	return a
}

func (a *attempt) prepare() wire.Prepare {
	return wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: a.n, Sandbox: a.sandbox, IDBase: idBase, DiskBytes: 32 << 20}
}

func (a *attempt) merge() (wire.Merged, error) {
	return a.f.Merge(a.f.ctx, node, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: a.n, Sandbox: a.sandbox, Principal: "worker", Keep: true})
}

func (a *attempt) merged() wire.Merged {
	a.f.t.Helper()
	m, err := a.merge()
	require.NoError(a.f.t, err)
	require.NoDirExists(a.f.t, filepath.Dir(a.path))
	return m
}

// run does something as the sandbox's payload.
func (a *attempt) run(script string) string {
	a.f.t.Helper()
	cmd := exec.Command("/bin/bash", "-ec", script)
	cmd.Dir = a.path
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tree.Payload, Gid: tree.Payload}, Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
	out, err := cmd.CombinedOutput()
	require.NoError(a.f.t, err, string(out))
	return string(out)
}

func code(t testing.TB, want fault.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, fault.CodeOf(err), err.Error())
}

func keys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
