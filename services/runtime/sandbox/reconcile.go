package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/weftmesh/weft/schemas"
)

// Removed is what Reconcile took away.
type Removed struct {
	// Sandboxes by id, each with where it was found: container, snapshot, runtime, directory, socket, cgroup, layer, range.
	Sandboxes map[string][]string
	// Shims are process ids of containerd's shims that served no container any more.
	Shims []int
}

// Empty reports whether there was nothing to take away.
func (r Removed) Empty() bool { return len(r.Sandboxes) == 0 && len(r.Shims) == 0 }

// Reconcile removes everything of this node for which keep says no and which Create is not working
// on, by the ids that claims gave them: containers, tasks, snapshots, mounts, namespaces, control groups, sockets, directories, id
// ranges, shims. It goes on after an error and gives all of them.
func (n *Node) Reconcile(ctx context.Context, keep func(id string) bool) (Removed, error) {
	found, err := n.everything(ctx)
	removed := Removed{Sandboxes: map[string][]string{}}
	if err != nil {
		return removed, err
	}
	var errs []error
	for body, where := range found {
		id := n.named(body)
		if n.held(body) || keep(id) {
			continue
		}
		if err := n.remove(ctx, body); err != nil {
			errs = append(errs, err)
			continue
		}
		removed.Sandboxes[id] = where
	}
	if n.engine.Private() {
		removed.Shims, err = n.engine.KillIdleShims(ctx)
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
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
