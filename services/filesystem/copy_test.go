package filesystem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// An overlay that begins with what another has changed: both go on apart, and merge apart.
func TestACopyOfAnOverlay(t *testing.T) {
	f := setup(t)
	f.put("changed", "one")
	f.put("removed", "gone soon")
	f.put("dir/inner", "moves along")
	standing := func(from string) *attempt {
		id := schemas.NewID()
		a := &attempt{f: f, task: id, n: 1, sandbox: id}
		f.holders.set(id, 1, id, workspace.Running)
		req := a.prepare()
		req.From = from
		p, err := f.Prepare(f.ctx, node, req)
		require.NoError(t, err)
		a.path, a.base = p.Path, p.Base
		again, err := f.Prepare(f.ctx, node, req)
		require.NoError(t, err)
		require.Equal(t, p, again)
		return a
	}
	source := standing("")
	source.run("echo two > changed; rm removed; mv dir moved; echo new > added; ln added linked; ln -s added link")
	f.put("later", "not in either")
	fork := standing(source.sandbox)
	require.Equal(t, source.base, fork.base)
	require.Equal(t, "added changed link linked moved\ntwo\nnew\nmoves along", fork.run("echo *; cat changed link moved/inner"))
	fork.run("echo three > changed; echo fork > only")
	require.Equal(t, "two\n", source.run("cat changed; [ ! -e only ]"))
	source.run("echo four > changed")
	require.Equal(t, "three\n", fork.run("cat changed"))
	fork.merged()
	require.Equal(t, map[string]string{"changed": "three\n", "added": "new\n", "linked": "new\n", "link": "->added", "moved/inner": "moves along",
		"only": "fork\n", "later": "not in either"}, f.files())

	for name, c := range map[string]struct {
		req  wire.Prepare
		code fault.Code
	}{
		"none":                            {wire.Prepare{From: schemas.NewID()}, fault.NotFound},
		"ended":                           {wire.Prepare{From: fork.sandbox}, fault.Conflict},
		"not an id":                       {wire.Prepare{From: "../x"}, fault.Invalid},
		"a workspace that is not its own": {wire.Prepare{From: source.sandbox, Workspace: "second"}, fault.NotFound},
	} {
		id := schemas.NewID()
		f.holders.set(id, 1, id, workspace.Running)
		req := (&attempt{f: f, task: id, n: 1, sandbox: id}).prepare()
		req.From = c.req.From
		if c.req.Workspace != "" {
			req.Workspace = c.req.Workspace
			f.holders.m["acme/second/"+id] = f.holders.m["acme/demo/"+id]
		}
		_, err := f.Prepare(f.ctx, node, req)
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
	}
	source.merged()
}
