package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// maxChain is how many layers lie on one another at most. Each costs overlayfs a lookup for every name that is not
// in the ones above.
const maxChain = 12

// layer is what layer.json holds: the manifest which the layer and those below it give together.
type layer struct {
	ID       string `json:"id"`
	Manifest string `json:"manifest"`
	Parent   string `json:"parent,omitempty"` // id of the layer below
	Depth    int    `json:"depth"`            // layers below
}

// layerID names the layer of a manifest: short, because overlayfs takes all names in one page. 80 bits of the
// hash; layer.json has all of it.
func layerID(h chunks.Hash) string { return h.String()[:20] }

// layers are those of one workspace.
type layers struct {
	dir    string // <data>/layers/<tenant>/<workspace>
	tree   *manifest.Tree
	src    manifest.Source
	newest string // id of the layer made last

	mu sync.Mutex
}

// openLayers finds what an earlier process made. Half-made layers are removed.
func openLayers(dir string, tree *manifest.Tree, src manifest.Source) (*layers, error) {
	l := &layers{dir: dir, tree: tree, src: src}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var last fs.FileInfo
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".tmp" {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		info, err := os.Lstat(filepath.Join(dir, e.Name(), "layer.json"))
		if err == nil && (last == nil || info.ModTime().After(last.ModTime())) {
			last, l.newest = info, e.Name()
		}
	}
	return l, nil
}

func (l *layers) load(id string) (layer, error) {
	var y layer
	b, err := os.ReadFile(filepath.Join(l.dir, id, "layer.json"))
	if err != nil {
		return y, err
	}
	return y, json.Unmarshal(b, &y)
}

// chain lists a layer and those below it, the uppermost first.
func (l *layers) chain(id string) ([]layer, error) {
	var out []layer
	for id != "" {
		y, err := l.load(id)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		if out = append(out, y); len(out) > 2*maxChain {
			return nil, fmt.Errorf("layer %s: chain without an end", id)
		}
		id = y.Parent
	}
	return out, nil
}

// ensure makes the layers that give manifest h together and lists their ids, the uppermost first.
func (l *layers) ensure(h chunks.Hash) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := layerID(h)
	y, err := l.load(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		y, err = l.make(h)
	case err == nil && y.Manifest != h.String():
		err = fmt.Errorf("layer %s is of another manifest", id)
	}
	if err != nil {
		return nil, err
	}
	below, err := l.chain(y.ID)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(below))
	for i, y := range below {
		ids[i] = y.ID
	}
	return ids, nil
}

// make builds a layer over the newest one or one below it, or from nothing.
func (l *layers) make(h chunks.Hash) (layer, error) {
	y := layer{ID: layerID(h), Manifest: h.String()}
	from, parent, err := l.parent(h)
	if err != nil {
		return y, err
	}
	if parent != nil {
		y.Parent, y.Depth = parent.ID, parent.Depth+1
	}
	tmp := filepath.Join(l.dir, y.ID+".tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return y, err
	}
	if err := l.build(tmp, from, h); err != nil {
		_ = os.RemoveAll(tmp)
		return y, fmt.Errorf("layer of manifest %s: %w", h, err)
	}
	b, err := json.Marshal(y)
	if err == nil {
		err = os.WriteFile(filepath.Join(tmp, "layer.json"), b, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(l.dir, y.ID))
	}
	if err == nil {
		l.newest = y.ID
	}
	return y, err
}

// parent chooses what to build on: the newest layer while its chain is short, else one half way down, whose difference is larger but which has few
// below it. Where most of the files differ it is nothing.
func (l *layers) parent(h chunks.Hash) (chunks.Hash, *layer, error) {
	chain, err := l.chain(l.newest)
	if err != nil || len(chain) == 0 {
		return manifest.Empty, nil, nil // a chain that can't be read is no reason to fail: start afresh
	}
	if len(chain) >= maxChain {
		chain = chain[len(chain)/2:]
	}
	from, err := chunks.ParseHash(chain[0].Manifest)
	if err != nil {
		return manifest.Empty, nil, err
	}
	root, err := l.tree.Root(h)
	if err != nil {
		return manifest.Empty, nil, err
	}
	differ, most := int64(0), max(1000, root.Files/2)
	err = l.tree.Diff(from, h, func(manifest.Change) error {
		if differ++; differ > most {
			return errTooMany
		}
		return nil
	})
	if err == errTooMany || errors.Is(err, chunks.ErrMissing) {
		return manifest.Empty, nil, nil
	}
	return from, &chain[0], err
}

var errTooMany = errors.New("too many differences")

// build writes to dir/root what makes tree `to` of tree `from` when it lies over it.
func (l *layers) build(dir string, from, to chunks.Hash) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	// The modes are those of the manifest, not what this process's umask leaves of them: everything is set explicitly.
	d, err := dirs.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	root, err := d.Mkdir("root")
	if err != nil {
		return err
	}
	defer root.Close()
	if err := l.fill(root, from, to, 0); err != nil {
		return err
	}
	return root.MetaSelf(0o755, Owner, Owner)
}

// fill writes into d what differs between two directories.
func (l *layers) fill(d *dirs.Dir, from, to chunks.Hash, depth int) error {
	if from == to {
		return nil
	}
	if depth > manifest.MaxDepth {
		return manifest.ErrTooDeep
	}
	a, err := l.tree.Node(from)
	if err != nil {
		return err
	}
	b, err := l.tree.Node(to)
	if err != nil {
		return err
	}
	return manifest.Zip(a.Entries, b.Entries, func(x, y *manifest.Entry) error {
		switch {
		case y == nil:
			return d.Whiteout(x.Name)
		case x != nil && manifest.Same(*x, *y) && x.MTime == y.MTime:
			return nil
		case y.Type == manifest.Dir:
			return l.directory(d, x, y, depth)
		case y.Type == manifest.Symlink:
			if err := d.Symlink(y.Target, y.Name); err != nil {
				return err
			}
		default:
			if err := l.file(d, *y); err != nil {
				return err
			}
		}
		return errors.Join(d.Own(y.Name, Owner, Owner), d.Chtimes(y.Name, unixNano(y.MTime)))
	})
}

func (l *layers) directory(d *dirs.Dir, x, y *manifest.Entry, depth int) error {
	sub, err := d.Mkdir(y.Name)
	if err != nil {
		return err
	}
	defer sub.Close()
	below := manifest.Empty
	if x != nil && x.Type == manifest.Dir {
		below = x.Hash
	}
	if err := l.fill(sub, below, y.Hash, depth+1); err != nil {
		return err
	}
	return errors.Join(sub.MetaSelf(y.Mode, Owner, Owner), sub.ChtimesSelf(unixNano(y.MTime)))
}

func (l *layers) file(d *dirs.Dir, e manifest.Entry) error {
	r, err := manifest.Open(l.src, e, 0)
	if err != nil {
		return err
	}
	f, err := d.Create(e.Name)
	if err != nil {
		return err
	}
	_, err = f.ReadFrom(r)
	return errors.Join(err, unix.Fchmod(int(f.Fd()), e.Mode), f.Close())
}

// prune removes the layers that neither the newest one nor an id of keep needs.
func (l *layers) prune(keep []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	needed := map[string]bool{}
	for _, id := range append(keep, l.newest) {
		chain, err := l.chain(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, y := range chain {
			needed[y.ID] = true
		}
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !needed[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.dir, e.Name())))
		}
	}
	return err
}
