package filesystem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// crashDirEnv makes the test binary the child of a crash test: it does what the variable says.
const crashDirEnv = "WEFT_FILESYSTEM_CRASH"

// errand is what a child is to do, as one service on the parent's mesh and directory.
type errand struct {
	DataDir, SpoolDir, MeshDir, URL string
	Holders                         map[string]workspace.AttemptReply
	Spaces                          workspaces

	Prepare *wire.Prepare
	Merge   *wire.Merge
	Discard *wire.Discard
	Delete  *wire.DeleteWorkspace
	Put     *wire.PutRequest // with "put" as content
}

func crashChild(spec string) int {
	if err := runErrand(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runErrand(spec string) error {
	var e errand
	if err := json.Unmarshal([]byte(spec), &e); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	keys, err := accounts.OpenKeyring(e.MeshDir + "/keys")
	if err != nil {
		return err
	}
	conn, err := mesh.Connect(ctx, mesh.Options{URL: e.URL, Name: schemas.Filesystem, Credentials: func() (accounts.Credentials, error) { return keys.Service(schemas.Filesystem) }})
	if err != nil {
		return err
	}
	defer conn.Close()
	cfg := Config{DataDir: e.DataDir, SpoolDirs: []string{e.SpoolDir}, Logger: slog.Default()}.OnMesh(conn)
	cfg.Attempts, cfg.Workspaces = &holders{m: e.Holders}, e.Spaces
	s, err := New(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	switch {
	case e.Prepare != nil:
		_, err = s.Prepare(ctx, node, *e.Prepare)
	case e.Merge != nil:
		_, err = s.Merge(ctx, node, *e.Merge)
	case e.Discard != nil:
		_, err = s.Discard(ctx, node, *e.Discard)
	case e.Delete != nil:
		_, err = s.DeleteWorkspace(ctx, *e.Delete)
	case e.Put != nil:
		_, err = s.Put(ctx, alice, *e.Put, strings.NewReader("put"))
	}
	return err
}

// killedAt runs an errand in a child that dies at a failpoint, while this process holds nothing of the directory.
func (f *fixture) killedAt(point string, e errand) {
	f.t.Helper()
	require.NoError(f.t, f.Close())
	e.DataDir, e.SpoolDir, e.MeshDir, e.URL, e.Holders, e.Spaces = f.cfg.DataDir, f.cfg.SpoolDirs[0], f.mesh.Dir, f.mesh.Bus.URL(), f.holders.m, f.spaces
	spec, err := json.Marshal(e)
	require.NoError(f.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDirEnv+"="+string(spec), failpoint.Env+"="+point)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.True(f.t, errors.As(err, &exit), "the child must die at %s: %v %s", point, err, out)
	require.Equal(f.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "at %s: %s", point, out)
	f.Service = nil
	f.restart()
}

func (f *fixture) mergeOf(a *attempt) wire.Merge {
	return wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: a.n, Sandbox: a.sandbox, Principal: "worker", Keep: true, Artifacts: []wire.Source{f.spool("stdout.log", "out\n")}}
}

// mergePoints are where a merge may be killed, and whether the head has it then.
var mergePoints = map[string]bool{
	"filesystem.merge.before-head":    false,
	"filesystem.head.after-head":      true,
	"filesystem.merge.after-head":     true,
	"filesystem.merge.after-artifact": true,
	"filesystem.merge.after-record":   true,
	"filesystem.overlay.mid-remove":   true,
}

func TestMergeKilledAndAskedAgain(t *testing.T) {
	for point := range mergePoints {
		t.Run(point, func(t *testing.T) {
			f := setup(t)
			f.put("both", "1\n2\n3\n")
			f.put("clash", "1")
			a := f.begin(schemas.NewID(), 2)
			a.run("echo new > new; sed -i s/3/three/ both; echo mine > clash")
			f.put("both", "one\n2\n3\n")
			f.put("clash", "theirs")
			f.killedAt(point, errand{Merge: new(f.mergeOf(a))})
			m, err := f.Merge(f.ctx, node, f.mergeOf(a))
			require.NoError(t, err)
			require.Equal(t, []string{"clash"}, m.Conflicts)
			require.Equal(t, 3, m.FilesChanged)
			want := map[string]string{"both": "one\n2\nthree\n", "clash": "theirs", "clash.conflict-" + a.task + "-2": "mine\n", "new": "new\n"}
			require.Equal(t, want, f.files())
			require.Equal(t, want, f.files(m.Snapshot), "the snapshot has its record")
			got, _ := f.unzip(m.Artifact)
			require.Equal(t, "out\n", got["stdout.log"])
			require.Equal(t, "mine\n", got["files/clash"])
			again, err := f.Merge(f.ctx, node, f.mergeOf(a))
			require.NoError(t, err)
			require.Equal(t, m, again)
			l, err := f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{})
			require.NoError(t, err)
			require.Len(t, l.Snapshots, 5, "four puts and one merge")
			noMounts(t, f.cfg.DataDir)
		})
	}
}

func TestMergeKilledAndNeverAskedAgain(t *testing.T) {
	for point, taken := range mergePoints {
		t.Run(point, func(t *testing.T) {
			f := setup(t)
			f.put("f", "x")
			a := f.begin(schemas.NewID(), 1)
			a.run("echo 1 > one; echo 2 > two")
			f.killedAt(point, errand{Merge: new(f.mergeOf(a))})
			_, err := f.Held(f.ctx, node, wire.Held{Node: "n1"})
			require.NoError(t, err)
			f.nothingLeft()
			want := map[string]string{"f": "x"}
			if taken {
				want["one"], want["two"] = "1\n", "2\n"
			}
			require.Equal(t, want, f.files(), "whole or not at all")
			// Somebody else goes on, and the snapshot in between is whole.
			f.put("later", "y")
			want["later"] = "y"
			require.Equal(t, want, f.files())
			m, err := f.Merge(f.ctx, node, f.mergeOf(a))
			if !taken {
				code(t, fault.Conflict, err)
				return
			}
			require.NoError(t, err, "it did take place, and says so")
			delete(want, "later")
			require.Equal(t, want, f.files(m.Snapshot))
		})
	}
}

// nothingLeft checks that no overlay has left anything behind on this machine.
func (f *fixture) nothingLeft() {
	f.t.Helper()
	noMounts(f.t, f.cfg.DataDir)
	require.Eventually(f.t, func() bool {
		left, err := os.ReadDir(f.cfg.DataDir + "/overlays")
		return err == nil && len(left) == 0
	}, 30*time.Second, 10*time.Millisecond)
	// The kernel frees a loop device a moment after its last use.
	require.Eventually(f.t, func() bool {
		out, err := os.ReadDir("/sys/block")
		require.NoError(f.t, err)
		for _, d := range out {
			b, err := os.ReadFile("/sys/block/" + d.Name() + "/loop/backing_file")
			if err == nil && strings.HasPrefix(string(b), f.cfg.DataDir) {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
}

var preparePoints = []string{
	"filesystem.prepare.after-fence", "filesystem.overlay.after-record", "filesystem.overlay.after-volume", "filesystem.overlay.after-mount",
}

func TestPrepareKilled(t *testing.T) {
	for _, point := range preparePoints {
		for _, again := range []bool{true, false} {
			t.Run(fmt.Sprint(point, again), func(t *testing.T) {
				f := setup(t)
				f.put("f", "x")
				a := &attempt{f: f, task: schemas.NewID(), n: 1, sandbox: schemas.NewID()}
				f.holders.set(a.task, 1, a.sandbox, workspace.Running)
				f.killedAt(point, errand{Prepare: new(a.prepare())})
				if !again {
					_, err := f.Held(f.ctx, node, wire.Held{Node: "n1"})
					require.NoError(t, err)
					f.nothingLeft()
					return
				}
				f.put("f", "later")
				p, err := f.Prepare(f.ctx, node, a.prepare())
				require.NoError(t, err)
				a.path = p.Path
				require.Equal(t, "x", a.run("cat f; echo more >> f"), "the base is that of the first try")
				a.merged()
				f.nothingLeft()
			})
		}
	}
}

func TestDiscardKilled(t *testing.T) {
	f := setup(t)
	a := f.begin(schemas.NewID(), 1)
	d := wire.Discard{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox}
	f.killedAt("filesystem.overlay.mid-remove", errand{Discard: &d})
	_, err := f.Discard(f.ctx, node, d)
	require.NoError(t, err)
	f.nothingLeft()
}

func TestPutKilled(t *testing.T) {
	f := setup(t)
	first := f.put("f", "first")
	f.killedAt("filesystem.head.after-head", errand{Put: &wire.PutRequest{Path: "f"}})
	require.Equal(t, "put", f.get("f"))
	require.NotEqual(t, first.Snapshot, f.put("g", "next").Snapshot)
	l, err := f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{})
	require.NoError(t, err)
	require.Len(t, l.Snapshots, 3, "the killed one has its record, too")
}

func TestDeleteKilled(t *testing.T) {
	f := setup(t)
	for _, req := range []wire.DeleteWorkspace{{Tenant: "acme", Workspace: "demo"}, {Tenant: "acme"}} {
		f.put("f", "x")
		a := f.begin(schemas.NewID(), 1)
		a.run("echo y > y")
		a.merged()
		f.begin(schemas.NewID(), 1)
		f.killedAt("filesystem.delete.after-records", errand{Delete: &req})
		_, err := f.DeleteWorkspace(f.ctx, req)
		require.NoError(t, err)
		f.nothingLeft()
		require.Empty(t, f.files())
		require.NoDirExists(t, f.cfg.DataDir+"/layers/acme/demo")
		require.NoDirExists(t, f.cfg.DataDir+"/artifacts/acme/demo")
	}
}

func TestEveryFailpointIsTried(t *testing.T) {
	tried := map[string]bool{"filesystem.delete.after-records": true}
	for p := range mergePoints {
		tried[p] = true
	}
	for _, p := range preparePoints {
		tried[p] = true
	}
	for _, p := range failpoint.Names() {
		if strings.HasPrefix(p, "filesystem.") {
			require.True(t, tried[p], p)
		}
	}
}
