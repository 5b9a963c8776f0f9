package filesystem

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// remote asks over the mesh as somebody.
type remote struct {
	f  *fixture
	c  *mesh.Conn
	as string
}

func (r remote) subject(op string) string {
	s, err := schemas.Req("acme", "demo", r.as, schemas.Filesystem, op)
	require.NoError(r.f.t, err)
	return s
}

func (r remote) put(req wire.PutRequest, content []byte) (wire.PutReply, error) {
	var rep wire.PutReply
	s, err := stream.Open(r.f.ctx, r.c, r.subject(wire.OpPut), req)
	if err != nil {
		return rep, err
	}
	defer s.Close()
	data := s.Channel(stream.Data)
	if _, err := data.Write(content); err == nil {
		_ = data.CloseWrite()
	}
	return rep, s.Result(r.f.ctx, &rep)
}

func (r remote) get(op string, req any, result any) ([]byte, error) {
	s, err := stream.Open(r.f.ctx, r.c, r.subject(op), req)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := io.ReadAll(s.Channel(stream.Data))
	if rerr := s.Result(r.f.ctx, result); rerr != nil {
		return nil, rerr
	}
	return b, err
}

func ask[Rep any](r remote, op string, req any) (Rep, error) {
	ctx, cancel := context.WithTimeout(r.f.ctx, 10*time.Second)
	defer cancel()
	return mesh.Request[Rep](ctx, r.c, r.subject(op), req)
}

func askInt[Rep any](f *fixture, c *mesh.Conn, as, op string, req any) (Rep, error) {
	subject, err := schemas.Int(as, schemas.Filesystem, op)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
	defer cancel()
	return mesh.Request[Rep](ctx, c, subject, req)
}

func TestOverTheMesh(t *testing.T) {
	f := setup(t)
	conn := f.mesh.Service(schemas.Filesystem)
	stop, err := f.Serve(conn)
	require.NoError(t, err)
	defer stop()
	alice := remote{f, f.mesh.User("acme", "alice"), "alice"}
	n1 := f.mesh.Node("n1")

	big := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	rep, err := alice.put(wire.PutRequest{Path: "data/big"}, big)
	require.NoError(t, err)
	require.EqualValues(t, len(big), rep.Bytes)
	var e wire.Entry
	got, err := alice.get(wire.OpGet, wire.GetRequest{Path: "data/big", Offset: 1000}, &e)
	require.NoError(t, err)
	require.True(t, bytes.Equal(big[1000:], got))
	require.Equal(t, "file", e.Type)

	task, sandbox := schemas.NewID(), schemas.NewID()
	f.holders.set(task, 1, sandbox, workspace.Running)
	p, err := askInt[wire.Prepared](f, n1, "n1", wire.OpPrepare, wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: task, Attempt: 1, Sandbox: sandbox, IDBase: idBase})
	require.NoError(t, err)
	a := &attempt{f: f, task: task, n: 1, sandbox: sandbox, path: p.Path}
	a.run("echo from inside > inside; rm data/big")
	m, err := askInt[wire.Merged](f, n1, "n1", wire.OpMerge, wire.Merge{Tenant: "acme", Workspace: "demo", Owner: task, Attempt: 1, Sandbox: sandbox, Principal: "worker", Keep: true})
	require.NoError(t, err)
	require.Equal(t, 2, m.FilesChanged)

	l, err := ask[wire.ListReply](alice, wire.OpList, wire.ListRequest{Recursive: true})
	require.NoError(t, err)
	require.Len(t, l.Entries, 2)
	require.Equal(t, "inside", l.Entries[1].Path)
	archive, err := alice.get(wire.OpGet, wire.GetRequest{Path: "", Snapshot: rep.Snapshot}, &e)
	require.NoError(t, err)
	h, err := tar.NewReader(bytes.NewReader(archive)).Next()
	require.NoError(t, err)
	require.Equal(t, "data/", h.Name)
	var art wire.Artifact
	zip, err := alice.get(wire.OpArtifactGet, workspace.ID{ID: m.Artifact}, &art)
	require.NoError(t, err)
	require.EqualValues(t, len(zip), art.Bytes)

	_, err = alice.get(wire.OpGet, wire.GetRequest{Path: "nowhere"}, &e)
	code(t, fault.NotFound, err)
	_, err = alice.put(wire.PutRequest{Path: "../x"}, []byte("x"))
	code(t, fault.Invalid, err)
	_, err = ask[wire.PutReply](alice, wire.OpRemove, wire.RemoveRequest{Path: "inside"})
	require.NoError(t, err)
	_, err = askInt[workspace.Empty](f, n1, "n1", wire.OpHeld, wire.Held{Node: "n1"})
	require.NoError(t, err)
	_, err = askInt[workspace.Empty](f, n1, "n1", wire.OpDeleteWorkspace, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
	code(t, fault.Denied, err)
	_, err = askInt[workspace.Empty](f, f.mesh.Service(schemas.WorkspaceManager), schemas.WorkspaceManager, wire.OpDeleteWorkspace, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
	require.NoError(t, err)
	l, err = ask[wire.ListReply](alice, wire.OpList, wire.ListRequest{})
	require.NoError(t, err)
	require.Empty(t, l.Entries)
}

// TestAsksTheWorkspaceManager runs the real adapters: the record of the workspace, and the question who holds a task.
func TestAsksTheWorkspaceManager(t *testing.T) {
	f := setup(t)
	manager := f.mesh.Service(schemas.WorkspaceManager)
	task, sandbox := schemas.NewID(), schemas.NewID()
	served, err := manager.ServeInt(schemas.WorkspaceManager, mesh.Op(workspace.OpAttempt, time.Second, func(_ context.Context, by mesh.Caller, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
		require.Equal(t, schemas.Filesystem, by.Principal)
		require.Equal(t, workspace.AttemptRequest{Tenant: "acme", Workspace: "real", Task: task}, req)
		return workspace.AttemptReply{State: workspace.Running, Attempt: 4, Sandbox: sandbox, Node: "n1"}, nil
	}))
	require.NoError(t, err)
	defer served.Stop()
	real := Config{}.OnMesh(f.mesh.Service(schemas.Filesystem))
	f.cfg.Attempts, f.cfg.Workspaces = real.Attempts, real.Workspaces
	f.restart()
	req := wire.Prepare{Tenant: "acme", Workspace: "real", Owner: task, Attempt: 4, Sandbox: sandbox}
	_, err = f.Prepare(f.ctx, node, req)
	code(t, fault.NotFound, err)
	ws := records.New[workspace.Workspace](manager, "workspace", 1)
	_, err = ws.Create(f.ctx, records.Key{Tenant: "acme", Workspace: "-", ID: "real"}, "created", workspace.Workspace{Name: "real", State: "active", Quota: workspace.Quota{DiskBytes: 10}})
	require.NoError(t, err)
	_, err = f.Prepare(f.ctx, node, req)
	require.NoError(t, err)
	_, err = f.Put(f.ctx, mesh.Caller{Tenant: "acme", Workspace: "real", Principal: "alice"}, wire.PutRequest{Path: "f"}, bytes.NewReader(make([]byte, 11)))
	code(t, fault.Exhausted, err)
}
