package filesystem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

func TestTwoAttemptsMerge(t *testing.T) {
	f := setup(t)
	f.put("shared.txt", "1\n2\n3\n4\n5\n")
	f.put("gone.txt", "x")
	one, two := f.begin(schemas.NewID(), 1), f.begin(schemas.NewID(), 1)
	one.run("sed -i s/1/one/ shared.txt; mkdir one; echo 1 > one/file; rm gone.txt")
	two.run("sed -i s/5/five/ shared.txt; mkdir two; echo 2 > two/file; ls gone.txt")
	m1 := one.merged()
	require.Equal(t, 3, m1.FilesChanged)
	require.Empty(t, m1.Conflicts)
	m2 := two.merged()
	require.Equal(t, 2, m2.FilesChanged)
	require.Empty(t, m2.Conflicts)
	require.Equal(t, map[string]string{"shared.txt": "one\n2\n3\n4\nfive\n", "one/file": "1\n", "two/file": "2\n"}, f.files())
	require.Equal(t, map[string]string{"shared.txt": "one\n2\n3\n4\n5\n", "one/file": "1\n"}, f.files(m1.Snapshot))
	// The next one starts from both, on layers.
	three := f.begin(schemas.NewID(), 1)
	require.Equal(t, m2.Snapshot, three.base)
	require.Equal(t, "one\n2\n3\n4\nfive\n", three.run("cat shared.txt; test ! -e gone.txt"))
	m3 := three.merged()
	require.Equal(t, m2.Snapshot, m3.Snapshot, "nothing changed, no version")
	require.Empty(t, m3.Artifact)
}

func TestConflictsKeepBoth(t *testing.T) {
	f := setup(t)
	f.put("f", "base\n")
	f.put("edited", "base\n")
	task := schemas.NewID()
	a := f.begin(task, 3)
	a.run("echo mine > f; rm edited; echo new > new")
	f.put("f", "theirs\n")
	f.put("edited", "edited\n")
	f.put("new", "other\n")
	m := a.merged()
	require.Equal(t, []string{"edited", "f", "new"}, m.Conflicts)
	require.Equal(t, map[string]string{"f": "theirs\n", "f.conflict-" + task + "-3": "mine\n", "edited": "edited\n", "new": "other\n", "new.conflict-" + task + "-3": "new\n"}, f.files())
}

func TestMergeTwiceGivesTheSame(t *testing.T) {
	f := setup(t)
	a := f.begin(schemas.NewID(), 1)
	a.run("echo x > f")
	m := a.merged()
	f.put("f", "later")
	again, err := a.merge()
	require.NoError(t, err)
	require.Equal(t, m, again)
	require.Equal(t, "later", f.get("f"))
	_, err = f.Discard(f.ctx, node, wire.Discard{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox})
	require.NoError(t, err)
	again, err = a.merge()
	require.NoError(t, err)
	require.Equal(t, m, again)
}

func TestFence(t *testing.T) {
	f := setup(t)
	task := schemas.NewID()
	late := f.begin(task, 1)
	late.run("echo late > f")
	next := f.begin(task, 2)
	require.NoDirExists(t, late.path, "the overtaken attempt's files are gone")
	next.run("test ! -e f; echo next > f")

	_, err := late.merge()
	code(t, fault.Conflict, err)
	_, err = f.Prepare(f.ctx, node, late.prepare())
	code(t, fault.Conflict, err)
	wrong := *next
	wrong.sandbox = schemas.NewID()
	_, err = wrong.merge()
	code(t, fault.Conflict, err)
	_, err = f.Prepare(f.ctx, node, wrong.prepare())
	code(t, fault.Conflict, err)
	ahead := *next
	ahead.n = 3
	_, err = ahead.merge()
	code(t, fault.NotFound, err)

	// What the workspace-manager says counts, too: each of these is not the one that runs.
	for _, a := range []workspace.AttemptReply{
		{State: workspace.Running, Attempt: 3, Sandbox: next.sandbox}, {State: workspace.Running, Attempt: 2, Sandbox: schemas.NewID()},
		{State: workspace.Cancelled, Attempt: 2, Sandbox: next.sandbox}, {State: workspace.Queued, Attempt: 2, Sandbox: next.sandbox},
	} {
		f.holders.set(task, a.Attempt, a.Sandbox, a.State)
		_, err = next.merge()
		code(t, fault.Conflict, err)
	}
	require.Empty(t, f.files())
	f.holders.set(task, 2, next.sandbox, workspace.Running)
	next.merged()
	require.Equal(t, map[string]string{"f": "next\n"}, f.files())
	_, err = f.Prepare(f.ctx, node, next.prepare())
	code(t, fault.Conflict, err)
}

func TestPrepareAgainKeepsWhatWasWritten(t *testing.T) {
	f := setup(t)
	f.put("f", "base")
	a := f.begin(schemas.NewID(), 1)
	a.run("echo more >> f")
	f.put("f", "moved on")
	p, err := f.Prepare(f.ctx, node, a.prepare())
	require.NoError(t, err)
	require.Equal(t, a.base, p.Base)
	require.Equal(t, "basemore\n", a.run("cat f"))
	f.restart()
	p, err = f.Prepare(f.ctx, node, a.prepare())
	require.NoError(t, err)
	require.Equal(t, a.path, p.Path)
	require.Equal(t, "basemore\n", a.run("cat f"))
}

func TestDiscard(t *testing.T) {
	f := setup(t)
	a := f.begin(schemas.NewID(), 1)
	a.run("echo x > f")
	d := wire.Discard{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox}
	for range 2 {
		_, err := f.Discard(f.ctx, node, d)
		require.NoError(t, err)
	}
	_, err := a.merge()
	code(t, fault.Conflict, err)
	require.Empty(t, f.files())
	d.Owner, d.Sandbox = schemas.NewID(), schemas.NewID()
	_, err = f.Discard(f.ctx, node, d)
	require.NoError(t, err, "what was never prepared")
}

func TestHeldRemovesWhatNobodyHas(t *testing.T) {
	f := setup(t)
	gone, kept := f.begin(schemas.NewID(), 1), f.begin(schemas.NewID(), 1)
	listed := f.now
	f.now = f.now.Add(1)
	young := f.begin(schemas.NewID(), 1)
	_, err := f.Held(f.ctx, node, wire.Held{Node: "n1", Sandboxes: []string{kept.sandbox}, AsOf: listed})
	require.NoError(t, err)
	require.NoDirExists(t, gone.path)
	kept.run("true")
	young.run("true")
	_, err = gone.merge()
	code(t, fault.Conflict, err)
	kept.merged()
}

func TestPrepareForANodeThatMountsItself(t *testing.T) {
	f := setup(t)
	f.put("f", "x")
	for mode, writable := range map[string]bool{"private": true, "readonly": false} {
		req := wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: schemas.NewID(), Attempt: 1, Sandbox: schemas.NewID(), Mode: mode}
		f.holders.set(req.Owner, 1, req.Sandbox, workspace.Running)
		p, err := f.Prepare(f.ctx, node, req)
		require.NoError(t, err)
		require.NotNil(t, p.Layers)
		require.Len(t, p.Layers.Lower, 1)
		require.FileExists(t, p.Layers.Lower[0]+"/f")
		require.Equal(t, writable, p.Layers.Upper != "" && p.Layers.Work != "")
		if writable {
			require.DirExists(t, p.Layers.Upper)
			require.DirExists(t, p.Layers.Work)
		}
		require.Equal(t, 1, p.Files)
	}
}

func TestPrepareRefuses(t *testing.T) {
	f := setup(t)
	id := schemas.NewID()
	for name, c := range map[string]struct {
		req  wire.Prepare
		code fault.Code
	}{
		"tenant":    {wire.Prepare{Tenant: "../x", Workspace: "demo", Owner: id, Sandbox: id}, fault.Invalid},
		"workspace": {wire.Prepare{Tenant: "acme", Workspace: "-", Owner: id, Sandbox: id}, fault.Invalid},
		"owner":     {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: "x", Sandbox: id}, fault.Invalid},
		"sandbox":   {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: id, Sandbox: "../../../../etc/xxx1"}, fault.Invalid},
		"attempt":   {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: id, Sandbox: id, Attempt: -1}, fault.Invalid},
		"mode":      {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: id, Sandbox: id, Mode: "shared"}, fault.Invalid},
		"disk":      {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: id, Sandbox: id, DiskBytes: -1}, fault.Invalid},
		"nobody's":  {wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: id, Sandbox: id}, fault.Conflict},
		"unknown":   {wire.Prepare{Tenant: "acme", Workspace: "nowhere", Owner: id, Sandbox: id}, fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Prepare(f.ctx, node, c.req)
			code(t, c.code, err)
		})
	}
}

func TestAnotherNodeGetsNothing(t *testing.T) {
	f := setup(t)
	f.put("f", "x")
	a := f.begin(schemas.NewID(), 1)
	other := mesh.Caller{Principal: "n2"}
	_, err := f.Prepare(f.ctx, other, a.prepare())
	code(t, fault.Denied, err)
	_, err = f.Merge(f.ctx, other, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox, Keep: true})
	code(t, fault.Denied, err)
	_, err = f.Discard(f.ctx, other, wire.Discard{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox})
	code(t, fault.Denied, err)
	_, err = f.Discard(f.ctx, node, wire.Discard{Tenant: "acme", Workspace: "second", Owner: schemas.NewID(), Attempt: 1, Sandbox: a.sandbox})
	code(t, fault.Denied, err)
	_, err = f.Held(f.ctx, other, wire.Held{Node: "n2"})
	require.NoError(t, err)
	a.run("cat f")
	a.merged()
}

func TestMergeOverTheQuota(t *testing.T) {
	f := setup(t)
	f.spaces["acme/demo"] = workspace.Workspace{Name: "demo", State: "active", Quota: workspace.Quota{DiskBytes: 1 << 20}}
	f.put("f", "x")
	a := f.begin(schemas.NewID(), 1)
	a.run("head -c 900000 /dev/urandom > a; head -c 900000 /dev/urandom > b")
	_, err := a.merge()
	code(t, fault.Exhausted, err)
	a.run("rm a; truncate -s 1T sparse")
	_, err = a.merge()
	code(t, fault.Exhausted, err)
	require.Equal(t, []string{"f"}, keys(f.files()))
	// The failed attempt can still be ended.
	m, err := f.Merge(f.ctx, node, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: a.task, Attempt: 1, Sandbox: a.sandbox})
	require.NoError(t, err)
	require.Empty(t, m.Snapshot)
	require.Len(t, m.Skipped, 1)
}

func TestSkippedIsSaid(t *testing.T) {
	f := setup(t)
	a := f.begin(schemas.NewID(), 1)
	a.run("mkfifo pipe; echo x > f; ln -s /etc/shadow s")
	m := a.merged()
	require.Equal(t, []string{"pipe: a FIFO can't be stored"}, m.Skipped)
	require.Equal(t, map[string]string{"f": "x\n", "s": "->/etc/shadow"}, f.files())
	_, err := f.Get(f.ctx, alice, wire.GetRequest{Path: "s"}, nil)
	code(t, fault.Invalid, err)
}
