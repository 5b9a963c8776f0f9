package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// OnMesh fills in what the node takes from the mesh. conn is connected as the node.
func (c Config) OnMesh(conn *mesh.Conn) Config {
	c.Mesh = conn
	c.Node = conn.Name()
	if c.Pool == "" {
		c.Pool = "default"
	}
	c.Queue = newMeshQueue(conn, c.Node, c.Pool)
	c.Manager, c.Files, c.Secrets, c.Output = meshManager{conn}, meshFiles{conn}, meshSecrets{conn}, meshOutput{conn}
	return c
}

// ask sends a request of this node to a service.
func ask[Rep any](ctx context.Context, c *mesh.Conn, service, op string, req any) (Rep, error) {
	subject, err := schemas.Int(c.Name(), service, op)
	if err != nil {
		var none Rep
		return none, fault.New(fault.Invalid, "%v", err)
	}
	return mesh.Request[Rep](ctx, c, subject, req)
}

func tell(ctx context.Context, c *mesh.Conn, service, op string, req any) error {
	_, err := ask[workspace.Empty](ctx, c, service, op, req)
	return err
}

type meshManager struct{ c *mesh.Conn }

func (m meshManager) Claim(ctx context.Context, req workspace.Claim) (workspace.ClaimReply, error) {
	return ask[workspace.ClaimReply](ctx, m.c, schemas.WorkspaceManager, workspace.OpClaim, req)
}

func (m meshManager) Renew(ctx context.Context, req workspace.Renew) (workspace.Renewed, error) {
	return ask[workspace.Renewed](ctx, m.c, schemas.WorkspaceManager, workspace.OpRenew, req)
}

func (m meshManager) Progress(ctx context.Context, req workspace.Progress) error {
	return tell(ctx, m.c, schemas.WorkspaceManager, workspace.OpProgress, req)
}

func (m meshManager) Finish(ctx context.Context, req workspace.Finish) error {
	return tell(ctx, m.c, schemas.WorkspaceManager, workspace.OpFinish, req)
}

func (m meshManager) Heartbeat(ctx context.Context, req workspace.Heartbeat) (workspace.HeartbeatReply, error) {
	return ask[workspace.HeartbeatReply](ctx, m.c, schemas.WorkspaceManager, workspace.OpHeartbeat, req)
}

func (m meshManager) NodeCleaned(ctx context.Context, req workspace.Cleaned) error {
	return tell(ctx, m.c, schemas.WorkspaceManager, workspace.OpNodeCleaned, req)
}

func (m meshManager) SandboxEnded(ctx context.Context, req runtime.SandboxEnded) error {
	return tell(ctx, m.c, schemas.WorkspaceManager, workspace.OpSandboxEnded, req)
}

func (m meshManager) SandboxWarned(ctx context.Context, req runtime.SandboxWarned) error {
	return tell(ctx, m.c, schemas.WorkspaceManager, workspace.OpSandboxWarned, req)
}

type meshFiles struct{ c *mesh.Conn }

func (m meshFiles) Prepare(ctx context.Context, req filesystem.Prepare) (filesystem.Prepared, error) {
	return ask[filesystem.Prepared](ctx, m.c, schemas.Filesystem, filesystem.OpPrepare, req)
}

func (m meshFiles) Merge(ctx context.Context, req filesystem.Merge) (filesystem.Merged, error) {
	return ask[filesystem.Merged](ctx, m.c, schemas.Filesystem, filesystem.OpMerge, req)
}

func (m meshFiles) Discard(ctx context.Context, req filesystem.Discard) error {
	return tell(ctx, m.c, schemas.Filesystem, filesystem.OpDiscard, req)
}

func (m meshFiles) Held(ctx context.Context, req filesystem.Held) error {
	return tell(ctx, m.c, schemas.Filesystem, filesystem.OpHeld, req)
}

type meshSecrets struct{ c *mesh.Conn }

func (m meshSecrets) Issue(ctx context.Context, req secrets.IssueRequest) (secrets.IssueReply, error) {
	return ask[secrets.IssueReply](ctx, m.c, schemas.Secrets, secrets.OpIssue, req)
}

func (m meshSecrets) Renew(ctx context.Context, req secrets.RenewRequest) (secrets.RenewReply, error) {
	return ask[secrets.RenewReply](ctx, m.c, schemas.Secrets, secrets.OpRenew, req)
}

func (m meshSecrets) Revoke(ctx context.Context, req secrets.RevokeRequest) (secrets.RevokeReply, error) {
	return ask[secrets.RevokeReply](ctx, m.c, schemas.Secrets, secrets.OpRevoke, req)
}

type meshOutput struct{ c *mesh.Conn }

// Publish sends all chunks and then waits for each acknowledgement, in order.
func (m meshOutput) Publish(ctx context.Context, item workspace.QueueItem, chunks []Chunk) (int, error) {
	subject, err := schemas.Out(item.Tenant, item.Workspace, item.Task, item.Attempt)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%v", err)
	}
	futures := make([]jetstream.PubAckFuture, 0, len(chunks))
	for _, c := range chunks {
		msg := nats.NewMsg(subject)
		msg.Data = c.Data
		msg.Header.Set(schemas.HeaderStream, c.Stream.String())
		msg.Header.Set(schemas.HeaderOffset, strconv.FormatInt(c.Offset, 10))
		if c.EOF {
			msg.Header.Set(schemas.HeaderEOF, "true")
		}
		f, err := m.c.PublishAsync(msg)
		if err != nil {
			break // those before it are waited for
		}
		futures = append(futures, f)
	}
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return i, mesh.AsyncFault(err, subject)
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
	if len(futures) < len(chunks) {
		return len(futures), fault.New(fault.Unavailable, "the output stream takes no more now")
	}
	return len(futures), nil
}

// meshQueue pulls from the consumers of the node and of its pool, which the manager makes with the
// first heartbeat.
type meshQueue struct {
	conn   *mesh.Conn
	names  []string
	events chan pulled

	mu     sync.Mutex
	open   map[string]bool // consumers that were asked and whose answer nobody has taken yet
	asking sync.WaitGroup
}

// pulled is an answer of one consumer: a message, or nothing.
type pulled struct {
	name string
	msg  jetstream.Msg
	err  error
}

// pullFor is how long one request waits at the server for a message.
const pullFor = 5 * time.Second

// handBack is how long a message may wait in this process for room. Then it goes back, to a node that has some.
const handBack = 300 * time.Millisecond

func newMeshQueue(conn *mesh.Conn, node, pool string) *meshQueue {
	return &meshQueue{conn: conn, names: []string{node, pool}, events: make(chan pulled), open: map[string]bool{}}
}

// Pull keeps one request open at each consumer. A request outlives the room for which it was made: its
// message waits a moment for the next call, and goes back to the queue if there is none.
func (q *meshQueue) Pull(ctx context.Context, _ int) ([]Delivery, error) {
	for {
		q.request(ctx)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case p := <-q.events:
			q.done(p.name)
			if p.err != nil {
				return nil, p.err
			}
			if p.msg != nil {
				return []Delivery{delivery{p.msg}}, nil
			}
		}
	}
}

// request asks the consumers that have no request open.
func (q *meshQueue) request(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range q.names {
		if !q.open[name] {
			q.open[name] = true
			q.asking.Go(func() { q.fetch(ctx, name) })
		}
	}
}

func (q *meshQueue) done(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, name)
}

func (q *meshQueue) fetch(ctx context.Context, name string) {
	msg, err := q.next(ctx, name)
	t := time.NewTimer(handBack)
	defer t.Stop()
	select {
	case q.events <- pulled{name, msg, err}:
		return
	case <-t.C:
	case <-ctx.Done():
	}
	if msg != nil {
		_ = msg.Nak()
	}
	q.done(name)
}

// Close waits for the requests under way, which end with the last Pull's ctx.
func (q *meshQueue) Close() { q.asking.Wait() }

func (q *meshQueue) next(ctx context.Context, name string) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pullFor)
	defer cancel()
	cons, err := q.conn.JetStream().Consumer(ctx, provision.Queue, name)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the queue has no consumer for %s yet", name)
	}
	batch, err := cons.Fetch(1, jetstream.FetchContext(ctx))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the queue does not answer")
	}
	if msg, ok := <-batch.Messages(); ok {
		return msg, nil
	}
	err = batch.Error()
	if err == nil || errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) || ctx.Err() != nil {
		return nil, nil
	}
	return nil, fault.Wrap(err, fault.Unavailable, "the queue does not answer")
}

type delivery struct{ msg jetstream.Msg }

func (d delivery) Item() (workspace.QueueItem, error) {
	var i workspace.QueueItem
	err := json.Unmarshal(d.msg.Data(), &i)
	if err == nil {
		_, err = schemas.Out(i.Tenant, i.Workspace, i.Task, i.Attempt) // validates each of them
	}
	return i, err
}

// Ack waits for the server's word: what it did not hear would come again, and be claimed in vain.
func (d delivery) Ack(ctx context.Context) error { return d.msg.DoubleAck(ctx) }

func (d delivery) Again(_ context.Context, delay time.Duration) error {
	return d.msg.NakWithDelay(delay)
}
