package client

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// SendOptions are what a message may say beside its body.
type SendOptions struct {
	ID    string           // of the envelope; random if empty
	Group *workspace.Group // it is one of a group, for triggers that gather
	Task  string           // the task that sends it
}

// Sent is the acknowledgement of a message: it is stored, under this sequence of the tenant's messages.
type Sent struct {
	ID       string `json:"id"`
	To       string `json:"to"`
	Sequence uint64 `json:"sequence"`
}

// Send stores a message to a principal or a channel of the workspace. The body may be anything up to 256 KiB.
func (c *Client) Send(ctx context.Context, to string, body []byte, o SendOptions) (Sent, error) {
	subject, err := schemas.Msg(c.tenant, c.workspace, to, c.Principal())
	if err != nil {
		return Sent{}, fault.New(fault.Invalid, "%v", err)
	}
	if len(body) > schemas.MaxMessage {
		return Sent{}, fault.New(fault.Invalid, "a message of %d bytes is over the limit of %d; put it into a file and send its path", len(body), schemas.MaxMessage)
	}
	if o.ID == "" {
		o.ID = schemas.NewID()
	}
	h := nats.Header{schemas.HeaderID: {o.ID}}
	if o.Task != "" {
		h.Set(workspace.HeaderTask, o.Task)
	}
	if o.Group != nil {
		h.Set(workspace.HeaderGroup, o.Group.ID)
		h.Set(workspace.HeaderGroupSize, strconv.Itoa(o.Group.Size))
	}
	ack, err := c.publish(ctx, &nats.Msg{Subject: subject, Header: h, Data: body})
	return Sent{ID: o.ID, To: to, Sequence: ack.Sequence}, err
}

// Messages reads messages to the caller, or to the channel r.To, after a sequence. With WaitMS it waits
// for the first one.
func (c *Client) Messages(ctx context.Context, r workspace.MessagesRequest) ([]workspace.Message, error) {
	p, err := ask[workspace.Page[workspace.Message]](ctx, c, schemas.WorkspaceManager, workspace.OpMessages, r)
	return p.Items, err
}
