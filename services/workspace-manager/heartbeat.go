package manager

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// labelPool is the label of a node that names its pool.
const labelPool = "pool"

// Heartbeat takes what a node says of itself. Its record in the log changes only when something of note
// did; the rest goes to the bucket that expires by itself.
func (s *Service) Heartbeat(ctx context.Context, by mesh.Caller, hb workspace.Heartbeat) (workspace.HeartbeatReply, error) {
	var none workspace.HeartbeatReply
	if err := checkNode(by); err != nil {
		return none, err
	}
	if hb.Slots < 0 || hb.Slots > 100_000 || hb.Used < 0 {
		return none, fault.New(fault.Invalid, "slots %d and used %d must be 0 to 100,000", hb.Slots, hb.Used)
	}
	hb.Node = by.Principal
	hb.Pools = poolStates(hb.Node, hb.Pools, s.cfg.Now())
	if err := s.nodeQueues(ctx, hb); err != nil {
		return none, err
	}
	b, err := json.Marshal(hb)
	if err != nil {
		return none, err
	}
	if err := s.nodes.put(ctx, "node."+hb.Node, b); err != nil {
		return none, err
	}
	s.nodes.beat(hb.Node, hb)
	if err := s.recordNode(ctx, hb); err != nil {
		return none, err
	}
	return workspace.HeartbeatReply{Pools: s.wanted(hb)}, nil
}

// nodeQueues makes the queue's consumers for the node's pool and for the node itself: nodes may only
// pull from those, not make any.
func (s *Service) nodeQueues(ctx context.Context, hb workspace.Heartbeat) error {
	s.nodes.mu.Lock()
	done := s.nodes.of(hb.Node).queue
	s.nodes.mu.Unlock()
	if done {
		return nil
	}
	pool := hb.Labels[labelPool]
	if pool == "" {
		pool = DefaultPool
	}
	for _, name := range []string{pool, hb.Node} {
		if err := schemas.CheckName("pool", name); err != nil {
			return fault.New(fault.Invalid, "%v", err)
		}
		_, err := s.js.CreateOrUpdateConsumer(ctx, provision.Queue, jetstream.ConsumerConfig{
			Durable: name, FilterSubject: schemas.Prefix + "queue." + name + ".*", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: queueAckWait, MaxDeliver: -1, MaxAckPending: 100_000,
		})
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "the queue of %s can't be set up now", name)
		}
	}
	s.nodes.mu.Lock()
	s.nodes.of(hb.Node).queue = true
	s.nodes.mu.Unlock()
	return nil
}

// queueAckWait is how long a pulled attempt waits for its claim before another node gets it.
const queueAckWait = 10 * time.Second

// recordNode writes the node's record if something of note changed.
func (s *Service) recordNode(ctx context.Context, hb workspace.Heartbeat) error {
	state := workspace.NodeReady
	if hb.Draining {
		state = workspace.NodeDraining
	}
	k := nodeKey(hb.Node)
	s.nodes.mu.Lock()
	known := s.nodes.of(hb.Node).rec
	s.nodes.mu.Unlock()
	if sameNode(known, hb, state) {
		return nil
	}
	r, err := s.stores.nodes.Put(ctx, k, func(n *workspace.NodeRecord, _ bool) (string, error) {
		want := state
		if n.Drained {
			want = workspace.NodeDraining
		}
		if sameNode(*n, hb, want) {
			return "", nil
		}
		n.Heartbeat, n.State, n.SeenAt = hb, want, s.cfg.Now().UTC()
		n.Sandboxes, n.Pools, n.Snapshots = nil, nil, nil
		return want, nil
	})
	if err == nil {
		s.nodes.record(r)
	}
	return err
}

func sameNode(n workspace.NodeRecord, hb workspace.Heartbeat, state string) bool {
	if n.Drained {
		state = workspace.NodeDraining
	}
	return n.State == state && n.Incarnation == hb.Incarnation && n.NodeKey == hb.NodeKey && n.Slots == hb.Slots &&
		n.Version == hb.Version && n.Draining == hb.Draining && maps.Equal(n.Labels, hb.Labels) && slices.Equal(n.Images, hb.Images)
}

func nodeKey(name string) records.Key {
	return records.Key{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, ID: name}
}

// nodeLost writes that a node fell silent. Its attempts are not touched by it: their claims run out.
func (s *Service) nodeLost(ctx context.Context, name string) error {
	r, err := s.stores.nodes.Update(ctx, nodeKey(name), func(n *workspace.NodeRecord) (string, error) {
		if n.State == workspace.NodeLost {
			return "", nil
		}
		n.State, n.Reason = workspace.NodeLost, "no heartbeat"
		return workspace.NodeLost, nil
	})
	if err == nil {
		s.nodes.record(r)
	}
	return err
}

// NodeList shows every node and, where one takes nothing new, why.
func (s *Service) NodeList(_ context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.NodeRecord], error) {
	nodes := s.nodes.list()
	if by.Tenant != "" {
		nodes = forTenants(nodes)
	}
	return pageOf(nodes, req, func(n workspace.NodeRecord) string { return n.Node })
}

// NodeDrain has a node take nothing new, or take work again. What it runs goes on.
func (s *Service) NodeDrain(ctx context.Context, by mesh.Caller, req workspace.NodeDrain) (workspace.NodeRecord, error) {
	if err := checkOperator(by); err != nil {
		return workspace.NodeRecord{}, err
	}
	r, err := s.stores.nodes.Update(ctx, nodeKey(req.Name), func(n *workspace.NodeRecord) (string, error) {
		if n.Drained == !req.Undo {
			return "", nil
		}
		n.Drained = !req.Undo
		n.State = workspace.NodeReady
		if n.Drained || n.Draining {
			n.State = workspace.NodeDraining
		}
		return n.State, nil
	})
	if err != nil {
		return r.Value, err
	}
	s.nodes.record(r)
	s.wakeAdmission()
	return r.Value, nil
}

// checkOperator refuses everybody else on the int plane.
func checkOperator(by mesh.Caller) error {
	if by.Principal != schemas.Operator {
		return fault.New(fault.Denied, "only the operator may do this, not %s", by.Principal)
	}
	return nil
}
