package client

import (
	"context"
	"io"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// CreateSandbox makes an interactive sandbox and gives it when it is ready for commands.
func (c *Client) CreateSandbox(ctx context.Context, r workspace.SandboxCreate) (workspace.Sandbox, error) {
	return ask[workspace.Sandbox](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxCreate, r)
}

// Sandbox reads one sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (workspace.Sandbox, error) {
	return ask[workspace.Sandbox](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxGet, workspace.ID{ID: id})
}

// Sandboxes gives up to limit interactive sandboxes, the newest first; 0 is all.
func (c *Client) Sandboxes(ctx context.Context, limit int) ([]workspace.Sandbox, error) {
	return list[workspace.Sandbox](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxList, limit)
}

// KillSandbox ends a sandbox; one that has ended already stays as it is.
func (c *Client) KillSandbox(ctx context.Context, id string) (workspace.Sandbox, error) {
	ctx, cancel := atMost(ctx, killWait)
	defer cancel()
	return ask[workspace.Sandbox](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxKill, workspace.ID{ID: id})
}

func (c *Client) sbx(sandbox, op string) (string, error) {
	s, err := schemas.Sbx(c.tenant, c.workspace, sandbox, c.Principal(), op)
	if err != nil {
		return "", fault.New(fault.Invalid, "%v", err)
	}
	return s, nil
}

// Exec starts a process in a sandbox. Its stream has the channels stdin, stdout and stderr; its result
// is a runtime.ExecResult. The process ends when the stream is closed before. ctx holds for all of it.
func (c *Client) Exec(ctx context.Context, sandbox string, r runtime.ExecRequest) (*stream.Session, error) {
	return c.openSandbox(ctx, sandbox, runtime.OpExec, r, noInput(r.Stdin || r.PTY)...)
}

// noInput says that nothing will be written to a process, unless something may.
func noInput(input bool) []stream.Option {
	if input {
		return nil
	}
	return []stream.Option{stream.Silent(stream.Stdin)}
}

func (c *Client) openSandbox(ctx context.Context, sandbox, op string, r any, opts ...stream.Option) (*stream.Session, error) {
	subject, err := c.sbx(sandbox, op)
	if err != nil {
		return nil, err
	}
	st, err := stream.Open(ctx, c.conn, subject, r, opts...)
	if fault.Is(err, fault.Unavailable) {
		err = c.whyAway(ctx, sandbox, err)
	}
	return st, err
}

// whyAway gives a better reason why a sandbox does not answer, if its record has one.
func (c *Client) whyAway(ctx context.Context, id string, err error) error {
	s, e := c.Sandbox(ctx, id)
	switch {
	case fault.Is(e, fault.NotFound):
		return e
	case e != nil || s.State == workspace.SandboxRunning:
		return err
	case s.State == workspace.SandboxStopped && s.Exit != nil:
		why := s.Exit.Reason
		if s.Exit.By != "" {
			why += " by " + s.Exit.By
		}
		return fault.New(fault.Unavailable, "sandbox %s has ended (%s); create another one", id, why)
	}
	return fault.New(fault.Unavailable, "sandbox %s is %s", id, s.State)
}

// ReadFile copies a file of a sandbox's own view to w.
func (c *Client) ReadFile(ctx context.Context, sandbox, path string, w io.Writer) (int64, error) {
	s, err := c.openSandbox(ctx, sandbox, runtime.OpRead, runtime.FileRequest{Path: path})
	if err != nil {
		return 0, err
	}
	return receive(ctx, s, w, nil)
}

// WriteFile replaces a file of a sandbox's own view by what r gives, all of it or nothing.
func (c *Client) WriteFile(ctx context.Context, sandbox, path string, mode uint32, r io.Reader) (int64, error) {
	s, err := c.openSandbox(ctx, sandbox, runtime.OpWrite, runtime.FileRequest{Path: path, Mode: mode})
	if err != nil {
		return 0, err
	}
	return send(ctx, s, r, nil)
}

// InspectSandbox tells what a running sandbox is and does.
func (c *Client) InspectSandbox(ctx context.Context, id string) (runtime.Inspect, error) {
	subject, err := c.sbx(id, runtime.OpInspect)
	if err != nil {
		return runtime.Inspect{}, err
	}
	return mesh.Request[runtime.Inspect](ctx, c.conn, subject, workspace.Empty{})
}

// Signal sends a signal, as SIGTERM, to a process of a sandbox and everything in its group. InspectSandbox gives
// the processes' ids. Within a session of Exec, Send(stream.Signal, …) does the same.
func (c *Client) Signal(ctx context.Context, sandbox, process, signal string) error {
	subject, err := c.sbx(sandbox, runtime.OpSignal)
	if err != nil {
		return err
	}
	_, err = mesh.Request[workspace.Empty](ctx, c.conn, subject, runtime.SignalRequest{Process: process, Signal: signal})
	return err
}

// receive copies a stream's bytes to w and takes its result.
func receive(ctx context.Context, s *stream.Session, w io.Writer, result any) (int64, error) {
	defer func() { _ = s.Close() }()
	n, err := io.Copy(w, s.Channel(stream.Data))
	if err != nil {
		return n, err
	}
	return n, s.Result(ctx, result)
}

// send copies r to a stream and takes its result. If r fails the stream is broken off, so that the
// other side does not take a part for the whole.
func send(ctx context.Context, s *stream.Session, r io.Reader, result any) (int64, error) {
	defer func() { _ = s.Close() }()
	c := s.Channel(stream.Data)
	n, err := io.Copy(c, r)
	if err != nil && s.Err() == nil && !isClosed(err) {
		return n, err
	}
	// A refusal in the middle closes the channel; the result says why.
	_ = c.CloseWrite()
	return n, s.Result(ctx, result)
}

func isClosed(err error) bool { return err == io.ErrClosedPipe }
