package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Editor changes a tree in memory; Commit stores the directories that changed and no others.
type Editor struct {
	t    *Tree
	root *dirEdit
	now  int64
}

// dirEdit is a directory under change. Its entries are its own copy; kids are the directories of it that
// were opened, whose entries are not up to date until commit.
type dirEdit struct {
	entries []Entry
	kids    map[string]*dirEdit
	changed bool
	hash    chunks.Hash
}

// Edit begins to change the tree root. now, in nanoseconds since 1970, is the time of directories that it makes or changes.
func (t *Tree) Edit(root chunks.Hash, now int64) (*Editor, error) {
	d, err := t.open(root)
	if err != nil {
		return nil, err
	}
	return &Editor{t: t, root: d, now: now}, nil
}

func (t *Tree) open(h chunks.Hash) (*dirEdit, error) {
	n, err := t.Node(h)
	if err != nil {
		return nil, err
	}
	return &dirEdit{entries: slices.Clone(n.Entries), kids: map[string]*dirEdit{}, hash: h}, nil
}

func (d *dirEdit) find(name string) (int, bool) {
	return slices.BinarySearchFunc(d.entries, name, func(e Entry, s string) int { return strings.Compare(e.Name, s) })
}

// kid opens the directory name of d, nil if there is none.
func (e *Editor) kid(d *dirEdit, name string) (*dirEdit, error) {
	if k := d.kids[name]; k != nil {
		return k, nil
	}
	i, ok := d.find(name)
	if !ok {
		return nil, ErrNotFound
	}
	if d.entries[i].Type != Dir {
		return nil, ErrNotDir
	}
	k, err := e.t.open(d.entries[i].Hash)
	if err == nil {
		d.kids[name] = k
	}
	return k, err
}

// Get gives the entry at path as it is now. Size, Files and Hash of a directory are those from before the changes.
func (e *Editor) Get(path string) (Entry, error) {
	parts, err := SplitPath(path)
	if err != nil || len(parts) == 0 {
		return Entry{Type: Dir, Mode: 0o755, Hash: e.root.hash}, err
	}
	d := e.root
	for _, p := range parts[:len(parts)-1] {
		if d, err = e.kid(d, p); err != nil {
			return Entry{}, err
		}
	}
	i, ok := d.find(parts[len(parts)-1])
	if !ok {
		return Entry{}, ErrNotFound
	}
	return d.entries[i], nil
}

// Set puts entry x at path, whatever was there; only its Name is taken from path. Missing directories on the way are
// made; something else on the way is ErrNotDir. A directory that is set over one keeps what is in it if x has no hash.
func (e *Editor) Set(path string, x Entry) error {
	parts, err := SplitPath(path)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return errors.New("the root can't be replaced")
	}
	d := e.root
	for i, p := range parts[:len(parts)-1] {
		next, err := e.kid(d, p)
		if errors.Is(err, ErrNotFound) {
			next = e.mkdir(d, p, Entry{Type: Dir, Mode: 0o755, MTime: e.now, Hash: Empty})
		} else if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(parts[:i+1], "/"), err)
		}
		d.changed = true
		d = next
	}
	d.changed = true
	return e.set(d, parts[len(parts)-1], x)
}

func (e *Editor) set(d *dirEdit, name string, x Entry) error {
	x.Name = name
	i, ok := d.find(name)
	if x.Type == Dir && x.Hash.IsZero() {
		if ok && d.entries[i].Type == Dir {
			d.entries[i].Mode, d.entries[i].MTime = x.Mode, x.MTime
			return nil
		}
		x.Hash = Empty
	}
	delete(d.kids, name)
	if ok {
		d.entries[i] = x
	} else {
		if len(d.entries) >= MaxEntries {
			return fmt.Errorf("a directory holds at most %d entries", MaxEntries)
		}
		d.entries = slices.Insert(d.entries, i, x)
	}
	return nil
}

func (e *Editor) mkdir(d *dirEdit, name string, x Entry) *dirEdit {
	x.Name = name
	i, _ := d.find(name)
	d.entries = slices.Insert(d.entries, i, x)
	k := &dirEdit{kids: map[string]*dirEdit{}, hash: Empty}
	d.kids[name] = k
	d.changed = true
	return k
}

// Remove takes path and what is below it away.
func (e *Editor) Remove(path string) error {
	parts, err := SplitPath(path)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		e.root = &dirEdit{kids: map[string]*dirEdit{}, changed: true}
		return nil
	}
	way := []*dirEdit{e.root}
	for _, p := range parts[:len(parts)-1] {
		d, err := e.kid(way[len(way)-1], p)
		if err != nil {
			return err
		}
		way = append(way, d)
	}
	d, name := way[len(way)-1], parts[len(parts)-1]
	i, ok := d.find(name)
	if !ok {
		return ErrNotFound
	}
	d.entries = slices.Delete(d.entries, i, i+1)
	delete(d.kids, name)
	for _, d := range way {
		d.changed = true
	}
	return nil
}

// Commit puts the changed directories into b and gives the new root's hash. The batch still has to be committed.
func (e *Editor) Commit(b *chunks.Batch) (chunks.Hash, error) {
	h, _, err := e.commit(b, e.root)
	return h, err
}

func (e *Editor) commit(b *chunks.Batch, d *dirEdit) (chunks.Hash, *Node, error) {
	if !d.changed {
		n, err := e.t.Node(d.hash)
		return d.hash, n, err
	}
	for name, k := range d.kids {
		if !k.changed {
			continue
		}
		h, n, err := e.commit(b, k)
		if err != nil {
			return h, nil, err
		}
		i, _ := d.find(name)
		x := &d.entries[i]
		if x.Hash != h {
			x.Hash, x.MTime = h, e.now
			x.Files, x.Size = n.Totals()
		}
	}
	n := &Node{Entries: d.entries}
	h, err := Save(b, n)
	d.hash, d.changed = h, false
	return h, n, err
}

// Save puts a node into b. The empty one needs no chunk.
func Save(b *chunks.Batch, n *Node) (chunks.Hash, error) {
	if len(n.Entries) == 0 {
		return Empty, nil
	}
	return b.Put(n.Encode())
}
