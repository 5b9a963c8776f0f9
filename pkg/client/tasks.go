package client

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Submitted is what a submission gives: the task will be found under its id.
type Submitted struct {
	Task string `json:"task"`
	Key  string `json:"key"`
}

// Submit hands in a piece of work. When it returns without an error the work is accepted and never lost.
// key makes a repeat harmless: the same key in the same workspace is the same task. An empty key makes
// a random one.
func (c *Client) Submit(ctx context.Context, s workspace.Submission, key string) (Submitted, error) {
	if key == "" {
		key = schemas.NewID()
	}
	if err := schemas.CheckKey("key", key); err != nil {
		return Submitted{}, fault.New(fault.Invalid, "%v", err)
	}
	subject, err := schemas.Submit(c.tenant, c.workspace, c.Principal())
	if err != nil {
		return Submitted{}, fault.New(fault.Invalid, "%v", err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return Submitted{}, fault.Wrap(err, fault.Invalid, "the submission can't be written as JSON: %v", err)
	}
	if len(b) > schemas.MaxSubmission {
		return Submitted{}, fault.New(fault.Invalid, "a submission of %d bytes is over the limit of %d; put the input into a file of the workspace", len(b), schemas.MaxSubmission)
	}
	ack, err := c.publish(ctx, &nats.Msg{Subject: subject, Header: nats.Header{schemas.HeaderID: {key}}, Data: b})
	if err != nil {
		return Submitted{}, err
	}
	if ack.Duplicate {
		return Submitted{}, fault.New(fault.Conflict, "a message with this id was taken a moment ago; submit again")
	}
	return Submitted{Task: schemas.TaskID(c.tenant, c.workspace, key), Key: key}, nil
}

// Task reads a task as it is now.
func (c *Client) Task(ctx context.Context, id string) (workspace.Task, error) {
	return ask[workspace.Task](ctx, c, schemas.WorkspaceManager, workspace.OpTaskGet, workspace.ID{ID: id})
}

// Tasks gives up to limit tasks, the newest first; 0 is all. The filter's own limit and cursor are not used.
func (c *Client) Tasks(ctx context.Context, filter workspace.TaskList, limit int) ([]workspace.Task, error) {
	return all(limit, func(n int, cursor string) ([]workspace.Task, string, error) {
		filter.List = workspace.List{Limit: n, Cursor: cursor}
		p, err := ask[workspace.Page[workspace.Task]](ctx, c, schemas.WorkspaceManager, workspace.OpTaskList, filter)
		return p.Items, p.Cursor, err
	})
}

// CancelTask asks for a task's end. It gives the task as it then is: cancelled, or still running with
// the cancellation noted.
func (c *Client) CancelTask(ctx context.Context, id string) (workspace.Task, error) {
	return ask[workspace.Task](ctx, c, schemas.WorkspaceManager, workspace.OpTaskCancel, workspace.ID{ID: id})
}

// RetryTask submits a finished task again. It gives the new task.
func (c *Client) RetryTask(ctx context.Context, id string) (workspace.Task, error) {
	return ask[workspace.Task](ctx, c, schemas.WorkspaceManager, workspace.OpTaskRetry, workspace.ID{ID: id})
}

// TaskHistory gives every change of a task, the oldest first.
func (c *Client) TaskHistory(ctx context.Context, id string) ([]workspace.Change[workspace.Task], error) {
	p, err := ask[workspace.Page[workspace.Change[workspace.Task]]](ctx, c, schemas.WorkspaceManager, workspace.OpTaskHistory, workspace.ID{ID: id})
	return p.Items, err
}
