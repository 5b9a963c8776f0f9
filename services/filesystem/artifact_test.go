package filesystem

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (f *fixture) unzip(id string) (map[string]string, []string) {
	f.t.Helper()
	var b bytes.Buffer
	a, err := f.ArtifactGet(f.ctx, alice, workspace.ID{ID: id}, &b)
	require.NoError(f.t, err)
	sum := sha256.Sum256(b.Bytes())
	require.Equal(f.t, hex.EncodeToString(sum[:]), a.Hash)
	require.EqualValues(f.t, b.Len(), a.Bytes)
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(f.t, err)
	out, names := map[string]string{}, []string{}
	for _, m := range r.File {
		rd, err := m.Open()
		require.NoError(f.t, err)
		c, err := io.ReadAll(rd)
		require.NoError(f.t, err)
		out[m.Name] = string(c)
		names = append(names, m.Name)
	}
	require.Equal(f.t, len(names)-1, a.Files)
	return out, names
}

func (f *fixture) spool(name, content string) wire.Source {
	p := filepath.Join(f.cfg.SpoolDirs[0], name)
	require.NoError(f.t, os.WriteFile(p, []byte(content), 0o600))
	return wire.Source{Name: name, Path: p}
}

func TestArtifact(t *testing.T) {
	f := setup(t)
	f.put("old", "x")
	f.put("edit", "x")
	a := f.begin(schemas.NewID(), 1)
	a.run("rm old; echo y > edit; mkdir d; echo new > d/new; ln -s /etc/shadow link; mkfifo p")
	m, err := f.Merge(f.ctx, node, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox, Keep: true,
		Artifacts: []wire.Source{f.spool("stdout.log", "out\n"), f.spool("stderr.log", "err\n"), {Name: "none.log", Path: f.cfg.SpoolDirs[0] + "/none"}}})
	require.NoError(t, err)
	got, names := f.unzip(m.Artifact)
	require.Equal(t, []string{"stderr.log", "stdout.log", "files/d/new", "files/edit", "files/link", "changes.json"}, names)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(got["changes.json"]), &s))
	require.Equal(t, summary{Task: a.task, Attempt: 1, Kept: true, Snapshot: m.Snapshot, Added: []string{"d/new", "link"}, Modified: []string{"edit"}, Removed: []string{"old"}, Skipped: []string{"p: a FIFO can't be stored"}}, s)
	delete(got, "changes.json")
	require.Equal(t, map[string]string{"stdout.log": "out\n", "stderr.log": "err\n", "files/d/new": "new\n", "files/edit": "y\n", "files/link": "/etc/shadow"}, got)
	l, err := f.ArtifactList(f.ctx, alice, wire.SnapshotListRequest{})
	require.NoError(t, err)
	require.Len(t, l.Items, 1)
}

func TestAFailedAttemptLeavesAnArtifactOnly(t *testing.T) {
	f := setup(t)
	a := f.begin(schemas.NewID(), 1)
	a.run("echo half > f")
	f.holders.set(a.task, 1, a.sandbox, workspace.Cancelled)
	req := wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox}
	m, err := f.Merge(f.ctx, node, req)
	require.NoError(t, err)
	require.Empty(t, m.Snapshot)
	require.Equal(t, 1, m.FilesChanged)
	got, _ := f.unzip(m.Artifact)
	require.Equal(t, "half\n", got["files/f"])
	require.Empty(t, f.files())
	again, err := f.Merge(f.ctx, node, req)
	require.NoError(t, err)
	require.Equal(t, m, again)
}

func TestSourcesOutsideOfTheSpoolAreRefused(t *testing.T) {
	f := setup(t)
	spool := f.cfg.SpoolDirs[0]
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(spool, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(spool, "dir"), 0o700))
	a := f.begin(schemas.NewID(), 1)
	for name, c := range map[string]struct {
		src  wire.Source
		code fault.Code
	}{
		"elsewhere":   {wire.Source{Name: "x", Path: "/etc/passwd"}, fault.Denied},
		"dotdot":      {wire.Source{Name: "x", Path: spool + "/../../x"}, fault.Denied},
		"relative":    {wire.Source{Name: "x", Path: "x"}, fault.Denied},
		"bad name":    {wire.Source{Name: "../x", Path: spool + "/x"}, fault.Invalid},
		"files":       {wire.Source{Name: "files/x", Path: spool + "/x"}, fault.Invalid},
		"the summary": {wire.Source{Name: "changes.json", Path: spool + "/x"}, fault.Invalid},
		"a link out":  {wire.Source{Name: "x", Path: spool + "/link"}, fault.Internal},
		"a directory": {wire.Source{Name: "x", Path: spool + "/dir"}, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Merge(f.ctx, node, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox, Artifacts: []wire.Source{c.src}})
			code(t, c.code, err)
		})
	}
}

func TestALargeArtifactSaysWhatIsOmitted(t *testing.T) {
	f := setup(t, func(c *Config) { c.ArtifactBytes = 100 })
	a := f.begin(schemas.NewID(), 1)
	a.run("head -c 101 /dev/zero > large; echo small > small")
	got, _ := f.unzip(a.merged().Artifact)
	require.Equal(t, "small\n", got["files/small"])
	require.NotContains(t, got, "files/large")
	require.Contains(t, got["changes.json"], `"omitted": [`)
}

func TestSweep(t *testing.T) {
	f := setup(t, func(c *Config) {
		c.SnapshotKeep, c.SnapshotAge, c.ArtifactKeep, c.ArtifactAge, c.ChunkGrace = 2, time.Hour, 2, 24*time.Hour, time.Hour
	})
	var snaps, arts []string
	for i := range 6 {
		a := f.begin(schemas.NewID(), 1)
		a.run("echo " + strings.Repeat("x", i+1) + " > f")
		m := a.merged()
		snaps, arts = append(snaps, m.Snapshot), append(arts, m.Artifact)
		if i == 1 {
			_, err := f.Snapshot(f.ctx, alice, wire.SnapshotRequest{Message: "keep me"})
			require.NoError(t, err)
		}
		f.now = f.now.Add(time.Second)
	}
	open := f.begin(schemas.NewID(), 1)
	require.NoError(t, f.Sweep(f.ctx))
	l, err := f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{})
	require.NoError(t, err)
	require.Len(t, l.Snapshots, 6, "all are young")
	la, err := f.ArtifactList(f.ctx, alice, wire.SnapshotListRequest{})
	require.NoError(t, err)
	require.Len(t, la.Items, 2)
	_, err = f.ArtifactGet(f.ctx, alice, workspace.ID{ID: arts[0]}, io.Discard)
	code(t, fault.NotFound, err)

	f.now = f.now.Add(25 * time.Hour) // contents are old by the wall clock of their files, too
	require.NoError(t, f.Sweep(f.ctx))
	l, err = f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{})
	require.NoError(t, err)
	var ids []string
	for _, s := range l.Snapshots {
		ids = append(ids, s.ID)
	}
	require.Equal(t, []string{snaps[5], snaps[4], snaps[3], snaps[1]}, ids, "head, two more, the named one")
	require.Equal(t, map[string]string{"f": "xx\n"}, f.files(snaps[1]))
	require.Equal(t, map[string]string{"f": "xxxxxx\n"}, f.files())
	open.run("cat f; echo y > g")
	open.merged()
	require.Equal(t, 4*2+2, f.tenants["acme"].chunks.Len(), "content and root of four versions, then a file and a root more")
}

func TestSweepRemovesOverlaysThatNobodyHolds(t *testing.T) {
	f := setup(t)
	lost, runs := f.begin(schemas.NewID(), 1), f.begin(schemas.NewID(), 1)
	f.holders.set(lost.task, 2, schemas.NewID(), workspace.Running)
	require.NoError(t, f.Sweep(f.ctx))
	require.DirExists(t, lost.path, "too young to be asked about")
	f.now = f.now.Add(time.Hour)
	require.NoError(t, f.Sweep(f.ctx))
	require.NoDirExists(t, lost.path)
	runs.run("true")
}

func TestDelete(t *testing.T) {
	f := setup(t)
	for _, ws := range []string{"demo", "second"} {
		by := alice
		by.Workspace = ws
		_, err := f.Put(f.ctx, by, wire.PutRequest{Path: "f"}, strings.NewReader("x"))
		require.NoError(t, err)
	}
	a := f.begin(schemas.NewID(), 1)
	a.run("echo y > g")
	a.merged()
	f.begin(schemas.NewID(), 1)
	for range 2 {
		_, err := f.DeleteWorkspace(f.ctx, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
		require.NoError(t, err)
		noMounts(t, f.cfg.DataDir)
		require.Empty(t, f.files())
		require.NoDirExists(t, filepath.Join(f.cfg.DataDir, "layers/acme/demo"))
		require.NoDirExists(t, filepath.Join(f.cfg.DataDir, "artifacts/acme/demo"))
	}
	by := alice
	by.Workspace = "second"
	_, err := f.Stat(f.ctx, by, wire.GetRequest{Path: "f"})
	require.NoError(t, err)
	f.put("again", "works")
	for range 2 {
		_, err := f.DeleteWorkspace(f.ctx, wire.DeleteWorkspace{Tenant: "acme"})
		require.NoError(t, err)
		require.NoDirExists(t, filepath.Join(f.cfg.DataDir, "chunks/acme"))
	}
	f.put("again", "works")
	require.Equal(t, "works", f.get("again"))
	for _, bad := range []wire.DeleteWorkspace{{}, {Tenant: ".."}, {Tenant: "acme", Workspace: "../other"}, {Tenant: "acme", Workspace: "-"}} {
		_, err := f.DeleteWorkspace(f.ctx, bad)
		code(t, fault.Invalid, err)
	}
}
