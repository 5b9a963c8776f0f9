package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/schemas"
)

// Item is one thing that Reconcile found and took away.
type Item struct {
	Kind string // container, task, shim, mount, loop …
	ID   string // the sandbox's, or what else names it
}

// Items lists all that was taken away, in a fixed order.
func (r Removed) Items() []Item {
	items := slices.Clone(r.Others)
	for id, where := range r.Sandboxes {
		for _, kind := range where {
			items = append(items, Item{kind, id})
		}
	}
	for _, pid := range r.Shims {
		items = append(items, Item{"shim", strconv.Itoa(pid)})
	}
	slices.SortFunc(items, func(a, b Item) int {
		return strings.Compare(a.ID+"\x00"+a.Kind, b.ID+"\x00"+b.Kind)
	})
	return items
}

// idIn finds the sandbox to which a path on the node belongs: by the last element that is an id, with or
// without what follows a dot.
func idIn(path string) (string, bool) {
	elems := strings.Split(path, "/")
	for _, e := range slices.Backward(elems) {
		name, _, _ := strings.Cut(e, ".")
		if schemas.CheckID("sandbox", name) == nil {
			return name, true
		}
	}
	return "", false
}

// strayMounts lists the mounts of this node that belong to a sandbox, by its id: namespaces apart.
func (n *Node) strayMounts() (mounted, pinned map[string][]string, err error) {
	points, err := mounts.Below(n.cfg.RunDir)
	mounted, pinned = map[string][]string{}, map[string][]string{}
	for _, p := range points {
		id, ok := idIn(p)
		if !ok {
			continue
		}
		into := mounted
		if filepath.Base(filepath.Dir(p)) == "ns" {
			into = pinned
		}
		into[id] = append(into[id], p)
	}
	return mounted, pinned, err
}

// loopDevices lists those that hold a disk of a sandbox, by its id.
func (n *Node) loopDevices() (map[string][]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	found := map[string][]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // let go of meanwhile
		}
		path := strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)")
		if !strings.HasPrefix(path, n.layers+"/") && !strings.HasPrefix(path, n.cfg.RunDir+"/") {
			continue
		}
		if id, ok := idIn(path); ok {
			found[id] = append(found[id], "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(f))))
		}
	}
	return found, err
}

// releaseLoop has a loop device let go of its file, now or with its last user.
func releaseLoop(device string) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loop device: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) { // it has none
		return fmt.Errorf("release %s: %w", device, err)
	}
	return nil
}

// strays is where more is found than remove looks at: what a sandbox's directory, container and group do not lead to.
type strays struct {
	mounted, pinned, loops map[string][]string
	tasks, bundles         []string
}

func (n *Node) strays(ctx context.Context) (s strays, err error) {
	var errs [4]error
	s.mounted, s.pinned, errs[0] = n.strayMounts()
	s.loops, errs[1] = n.loopDevices()
	s.tasks, errs[2] = n.engine.Tasks(ctx)
	s.bundles, errs[3] = n.engine.Bundles()
	return s, errors.Join(errs[:]...)
}

// removeStray takes away what strays found of a sandbox, and all else of it.
func (n *Node) removeStray(ctx context.Context, id string, s strays) error {
	if err := n.remove(ctx, id); err != nil {
		return err
	}
	if slices.Contains(s.tasks, id) || slices.Contains(s.bundles, id) {
		if err := n.engine.DeleteStray(ctx, id); err != nil {
			return err
		}
	}
	var errs []error
	for _, p := range slices.Concat(s.mounted[id], s.pinned[id]) {
		_, err := mounts.Detach(p)
		errs = append(errs, err)
	}
	for _, device := range s.loops[id] {
		errs = append(errs, releaseLoop(device))
	}
	return errors.Join(errs...)
}

// nameless removes what lies in the node's own directories and groups under a name that is no sandbox's: half made
// when its maker died, and found by nobody's id.
func (n *Node) nameless() ([]Item, error) {
	var items []Item
	var errs []error
	took := func(kind, name string, err error) {
		if errs = append(errs, err); err == nil {
			items = append(items, Item{kind, name})
		}
	}
	for _, dir := range []string{n.base(), filepath.Join(n.cfg.RunDir, "sup")} {
		entries, err := names(dir)
		errs = append(errs, err)
		for _, name := range entries {
			if schemas.CheckID("sandbox", name) != nil {
				_, err := mounts.Detach(filepath.Join(dir, name))
				if err == nil { // else it would reach what is mounted
					err = os.RemoveAll(filepath.Join(dir, name))
				}
				took("directory", name, err)
			}
		}
	}
	groups, err := n.cgroups.List()
	errs = append(errs, err)
	for _, name := range groups {
		if schemas.CheckID("sandbox", name) != nil {
			ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
			took("cgroup", name, errors.Join(n.cgroups.Group(name).Kill(ctx), n.cgroups.Group(name).Remove(ctx)))
			cancel()
		}
	}
	unfinished, err := n.ranges.unfinished()
	errs = append(errs, err)
	for _, id := range unfinished {
		if !n.held(id) {
			took("range", id, n.ranges.forget(id))
		}
	}
	return items, errors.Join(errs...)
}

// unfinished lists the sandboxes for which a range was about to be taken.
func (a *ranges) unfinished() ([]string, error) {
	entries, err := names(a.dir)
	var ids []string
	for _, name := range entries {
		if id, ok := strings.CutPrefix(name, "."); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func (a *ranges) forget(id string) error {
	if err := os.Remove(filepath.Join(a.dir, "."+id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
