package sandbox

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/weftmesh/weft/schemas"
)

// Removed is what Reconcile took away.
type Removed struct {
	// Sandboxes by id, each with where it was found: container, task, bundle, snapshot, runtime, directory, socket, cgroup,
	// mount, namespace, loop, layer, range.
	Sandboxes map[string][]string
	// Others are what belonged to no sandbox: leases, directories, groups.
	Others []Item
	// Shims are process ids of containerd's shims that served no container any more.
	Shims []int
}

// Empty reports whether there was nothing to take away.
func (r Removed) Empty() bool {
	return len(r.Sandboxes) == 0 && len(r.Shims) == 0 && len(r.Others) == 0
}

// Reconcile removes everything of this node for which keep says no and which Create is not working
// on, by the ids that claims gave them: containers, tasks, snapshots, mounts, namespaces, control groups, sockets, directories, id
// ranges, shims. It goes on after an error and gives all of them.
func (n *Node) Reconcile(ctx context.Context, keep func(id string) bool) (Removed, error) {
	removed := Removed{Sandboxes: map[string][]string{}}
	before := n.heldNow() // what is destroyed while we look is no leftover
	found, stray, err := n.lookedFor(ctx)
	if err != nil {
		return removed, err
	}
	var errs []error
	for body, where := range found {
		id := n.named(body)
		if before[body] || n.held(body) || keep(id) {
			continue
		}
		if err := n.removeStray(ctx, body, stray); err != nil {
			errs = append(errs, err)
			continue
		}
		removed.Sandboxes[id] = where
	}
	removed.Others, err = n.nameless()
	errs = append(errs, err)
	if n.engine.Private() {
		errs = append(errs, n.reconcileDaemon(ctx, &removed))
	}
	return removed, errors.Join(errs...)
}

// reconcileDaemon takes away what the node's own containerd has left behind.
func (n *Node) reconcileDaemon(ctx context.Context, removed *Removed) error {
	leases, err := n.engine.DropLeases(ctx, n.opened)
	for _, id := range leases {
		removed.Others = append(removed.Others, Item{"lease", id})
	}
	// The socket files that shims leave when they end go along, untold: that is how shims are.
	var kerr error
	removed.Shims, kerr = n.engine.KillIdleShims(ctx)
	return errors.Join(err, kerr)
}

// heldNow are the bodies of the sandboxes that the node has at this moment.
func (n *Node) heldNow() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.bodies)
}

// lookedFor is everything, and what of it only its own traces tell.
func (n *Node) lookedFor(ctx context.Context) (map[string][]string, strays, error) {
	stray, err := n.strays(ctx)
	if err != nil {
		return nil, stray, err
	}
	found, err := n.everything(ctx)
	for kind, ids := range map[string][]string{
		"task": stray.tasks, "bundle": stray.bundles, "mount": slices.Collect(maps.Keys(stray.mounted)),
		"namespace": slices.Collect(maps.Keys(stray.pinned)), "loop": slices.Collect(maps.Keys(stray.loops)),
	} {
		for _, id := range ids {
			if schemas.CheckID("sandbox", id) == nil {
				found[id] = append(found[id], kind)
			}
		}
	}
	return found, stray, err
}

// everything lists each body of which anything of this node is left, and where.
func (n *Node) everything(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	var errs []error
	add := func(where string, ids []string, err error) {
		errs = append(errs, err)
		for _, id := range ids {
			if schemas.CheckID("sandbox", id) == nil && !slices.Contains(found[id], where) {
				found[id] = append(found[id], where)
			}
		}
	}
	containers, err := n.engine.List(ctx, labelOwner, n.owner)
	for _, c := range containers {
		add("container", []string{c.ID}, nil)
	}
	errs = append(errs, err)
	snapshots, err := n.engine.Snapshots(ctx, labelOwner, n.owner)
	add("snapshot", snapshots, err)
	states, err := n.engine.RuntimeStates()
	add("runtime", states, err)
	dirs, err := names(n.base())
	add("directory", dirs, err)
	sockets, err := n.server.Known()
	add("socket", sockets, err)
	groups, err := n.cgroups.List()
	add("cgroup", groups, err)
	layers, err := n.layerFiles()
	add("layer", layers, err)
	taken, err := n.ranges.taken()
	errs = append(errs, err)
	for _, id := range taken {
		add("range", []string{id}, nil)
	}
	return found, errors.Join(errs...)
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}
