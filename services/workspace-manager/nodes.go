package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/turns"
)

// The bucket in which replicas tell one another of heartbeats and renewals. It is in memory: nodes tell
// again within seconds.
const (
	heartbeatsBucket = "heartbeats"
	heartbeatsTTL    = time.Minute
	bucketCheck      = 2 * time.Second
)

// DefaultPool is the pool of nodes that name none.
const DefaultPool = "default"

// nodeSet is what this replica knows of the nodes: their records, and when each was last heard of.
type nodeSet struct {
	s  *Service
	mu sync.Mutex
	m  map[string]*node
	kv jetstream.KeyValue
}

type node struct {
	rec   workspace.NodeRecord
	beat  workspace.Heartbeat
	heard time.Time                // by this replica's clock; zero is never
	held  map[records.Key]struct{} // interactive sandboxes on it
	queue bool                     // its consumers on the queue are there
}

func newNodeSet(s *Service) *nodeSet { return &nodeSet{s: s, m: map[string]*node{}} }

func (ns *nodeSet) of(name string) *node {
	n := ns.m[name]
	if n == nil {
		n = &node{held: map[records.Key]struct{}{}}
		ns.m[name] = n
	}
	return n
}

// follow watches the bucket of heartbeats until ctx ends, or until it is found to be another than it
// was: a server that starts again has lost it.
func (ns *nodeSet) follow(ctx context.Context) error {
	if err := ns.makeBucket(ctx); err != nil {
		return err
	}
	kv, err := ns.bucket(ctx)
	if err != nil {
		return err
	}
	made, err := ns.made(ctx)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	t := time.NewTicker(bucketCheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if now, err := ns.made(ctx); err == nil && !now.Equal(made) || errors.Is(err, jetstream.ErrStreamNotFound) {
				return errors.New("the bucket of heartbeats was lost")
			}
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("watch of heartbeats ended")
			}
			if e != nil {
				ns.heardOf(e.Key(), e.Value())
			}
		}
	}
}

func (ns *nodeSet) heardOf(key string, value []byte) {
	kind, name, _ := strings.Cut(key, ".")
	switch kind {
	case "node":
		var hb workspace.Heartbeat
		if json.Unmarshal(value, &hb) == nil {
			ns.beat(name, hb)
		}
	case "claims":
		var held []attemptKey
		if json.Unmarshal(value, &held) == nil {
			ns.s.claims.renewed(held)
		}
	}
}

// made is when the bucket was made.
func (ns *nodeSet) made(ctx context.Context) (time.Time, error) {
	st, err := ns.s.js.Stream(ctx, "KV_"+heartbeatsBucket)
	if err != nil {
		return time.Time{}, err
	}
	return st.CachedInfo().Created, nil
}

// makeBucket makes the bucket where it is not there.
func (ns *nodeSet) makeBucket(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kv, err := ns.s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: heartbeatsBucket, TTL: heartbeatsTTL,
		Storage: jetstream.MemoryStorage, Replicas: ns.s.cfg.Replicas, Description: "nodes' heartbeats and renewals; lost with the servers, told again"})
	if err != nil {
		return fmt.Errorf("bucket %s: %w", heartbeatsBucket, err)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.kv = kv
	return nil
}

func (ns *nodeSet) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	ns.mu.Lock()
	kv := ns.kv
	ns.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := ns.s.js.KeyValue(ctx, heartbeatsBucket)
	if err != nil {
		return nil, err
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.kv = kv
	return kv, nil
}

func (ns *nodeSet) put(ctx context.Context, key string, b []byte) error {
	kv, err := ns.bucket(ctx)
	if err == nil {
		_, err = kv.Put(ctx, key, b)
	}
	return fault.Wrap(err, fault.Unavailable, "the mesh's store does not answer; try again")
}

// beat notes a heartbeat.
func (ns *nodeSet) beat(name string, hb workspace.Heartbeat) {
	ns.mu.Lock()
	n := ns.of(name)
	n.beat, n.heard = hb, ns.s.cfg.Now()
	ns.tell(name, n)
	ns.mu.Unlock()
	ns.s.wakeAdmission()
}

// record notes a node's record as the log has it.
func (ns *nodeSet) record(r records.Record[workspace.NodeRecord]) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.of(r.ID)
	n.rec = r.Value
	ns.tell(r.ID, n)
}

// hold notes on which node an interactive sandbox takes a slot.
func (ns *nodeSet) hold(r records.Record[workspace.Sandbox]) {
	ns.mu.Lock()
	for name, n := range ns.m {
		_, had := n.held[r.Key]
		has := name == r.Value.Node && r.Value.State != workspace.SandboxStopped && r.Event != deleted
		if has {
			n.held[r.Key] = struct{}{}
		} else {
			delete(n.held, r.Key)
		}
		if had != has {
			ns.tell(name, n)
		}
	}
	if ns.m[r.Value.Node] == nil && r.Value.State != workspace.SandboxStopped && r.Event != deleted {
		ns.of(r.Value.Node).held[r.Key] = struct{}{}
	}
	ns.mu.Unlock()
	ns.s.wakeAdmission()
}

// holds reports whether k is an interactive sandbox that is known to take a slot of a node.
func (ns *nodeSet) holds(name string, k records.Key) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[name]
	if n == nil {
		return false
	}
	_, is := n.held[k]
	return is
}

// tell gives admission what it must know of a node.
func (ns *nodeSet) tell(name string, n *node) {
	pool := n.beat.Labels[labelPool]
	ns.s.turns.SetNode(name, turns.Node{Ready: ns.why(n) == "", Apart: pool != "" && pool != DefaultPool, Slots: n.beat.Slots, Held: len(n.held)})
}

// why says why a node takes nothing new, "" if it does.
func (ns *nodeSet) why(n *node) string {
	switch {
	case n.heard.IsZero():
		return "not heard of yet"
	case ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout:
		return fmt.Sprintf("no heartbeat for %s", ns.s.cfg.NodeTimeout)
	case n.rec.Drained:
		return "drained by the operator"
	case n.beat.Draining:
		return "it is stopping"
	case ns.s.cfg.MinDiskFree > 0 && n.beat.DiskFree < ns.s.cfg.MinDiskFree:
		return fmt.Sprintf("disk nearly full: %d MiB free, less than %d MiB; free some space on it", n.beat.DiskFree>>20, ns.s.cfg.MinDiskFree>>20)
	}
	return ""
}

// refresh lets time pass: nodes that fell silent are ready no more. It gives those whose record says otherwise.
func (ns *nodeSet) refresh() (silent []string) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	for name, n := range ns.m {
		ns.tell(name, n)
		if n.rec.Node != "" && n.rec.State != workspace.NodeLost && !n.heard.IsZero() && ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout {
			silent = append(silent, name)
		}
	}
	return silent
}

// mayClaim refuses a claim of a node that takes nothing new. A node that was not heard of yet may: its
// heartbeat is on the way.
func (ns *nodeSet) mayClaim(name string) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[name]
	if n == nil || n.heard.IsZero() || ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout {
		return nil
	}
	if why := ns.why(n); why != "" {
		return fault.New(fault.Unavailable, "node %s takes nothing new: %s", name, why)
	}
	return nil
}

// placement is where an attempt is queued: at the node it is pinned to, else in the pool.
func (ns *nodeSet) placement(pin string) string {
	if pin != "" {
		return pin
	}
	return DefaultPool
}

// emptiest is the ready node with the most free slots by its own word and ours; "" if none has one. Nodes that
// have a member of one of the pools ready come first. The member counts as taken at once, so that a burst does
// not all go where one is left; the node's next heartbeat says what is so.
func (ns *nodeSet) emptiest(pin, level string, pools ...workspace.PoolRef) string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	best, room, warm := "", 0, false
	for _, name := range slices.Sorted(maps.Keys(ns.m)) {
		n := ns.m[name]
		if ns.why(n) != "" || (pin != "" && pin != name) || !n.offers(level) {
			continue
		}
		free, ready := n.beat.Slots-max(n.beat.Used, len(n.held)), n.member(pools) != nil
		if free > 0 && (ready && !warm || ready == warm && free > room) {
			best, room, warm = name, free, ready
		}
	}
	if warm {
		ns.m[best].member(pools).Ready--
	}
	return best
}

// has reports whether a node's last heartbeat names a sandbox, and when that was.
func (ns *nodeSet) has(name, sandbox string) (bool, time.Time) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[name]
	if n == nil {
		return false, time.Time{}
	}
	return slices.Contains(n.beat.Sandboxes, sandbox), n.heard
}

func (ns *nodeSet) list() []workspace.NodeRecord {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	out := []workspace.NodeRecord{}
	for _, name := range slices.Sorted(maps.Keys(ns.m)) {
		n := ns.m[name]
		r := n.rec
		if !n.heard.IsZero() {
			r.Heartbeat, r.SeenAt = n.beat, n.heard.UTC()
		}
		r.Node, r.Sandboxes, r.Pools = name, nil, nil // whose sandboxes and pools a node has is nobody's business
		r.Snapshots = nil
		if r.Reason = ns.why(n); r.Reason != "" {
			r.State = workspace.NodeDraining
			if n.heard.IsZero() || ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout {
				r.State = workspace.NodeLost
			}
		} else {
			r.State = workspace.NodeReady
		}
		out = append(out, r)
	}
	return out
}

// key is a node's public curve key, to which leases are sealed.
func (ns *nodeSet) key(name string) string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n := ns.m[name]; n != nil {
		return n.beat.NodeKey
	}
	return ""
}

// lost reports whether a node has been silent for so long that it counts as lost.
func (ns *nodeSet) lost(name string) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.m[name]
	return n == nil || n.heard.IsZero() || ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout
}
