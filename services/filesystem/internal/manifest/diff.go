package manifest

import (
	"strings"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Change is one path at which two trees differ. From or To is nil where it does not exist.
type Change struct {
	Path     string
	From, To *Entry
}

// Diff calls fn for every path at which tree b differs from tree a, sorted as a walk is: a directory before what is
// in it. Directories that exist on both sides with the same permissions are not reported themselves. Shared nodes are not read.
func (t *Tree) Diff(a, b chunks.Hash, fn func(Change) error) error {
	return t.diff(a, b, "", "", 0, fn)
}

// DiffFrom is Diff without what comes before the path from. The directories above it come, too.
func (t *Tree) DiffFrom(a, b chunks.Hash, from string, fn func(Change) error) error {
	return t.diff(a, b, "", from, 0, fn)
}

func (t *Tree) diff(a, b chunks.Hash, dir, from string, depth int, fn func(Change) error) error {
	if a == b {
		return nil
	}
	if depth > MaxDepth {
		return ErrTooDeep
	}
	na, err := t.Node(a)
	if err != nil {
		return err
	}
	nb, err := t.Node(b)
	if err != nil {
		return err
	}
	first, below, _ := strings.Cut(from, "/")
	return Zip(na.Entries[na.search(first):], nb.Entries[nb.search(first):], func(x, y *Entry) error {
		from := ""
		if x != nil && x.Name == first || y != nil && y.Name == first {
			from = below
		}
		return t.diffEntry(x, y, dir, from, depth, fn)
	})
}

func (t *Tree) diffEntry(x, y *Entry, dir, from string, depth int, fn func(Change) error) error {
	below := func(e *Entry) chunks.Hash {
		if e != nil && e.Type == Dir {
			return e.Hash
		}
		return Empty
	}
	name := ""
	if x != nil {
		name = x.Name
	} else {
		name = y.Name
	}
	path := Join(dir, name)
	bothDirs := x != nil && y != nil && x.Type == Dir && y.Type == Dir
	if bothDirs && x.Mode != y.Mode || !bothDirs && (x == nil || y == nil || !Same(*x, *y)) {
		if err := fn(Change{Path: path, From: x, To: y}); err != nil {
			return err
		}
	}
	return t.diff(below(x), below(y), path, from, depth+1, fn)
}

// Zip goes through two sorted lists together: fn gets the entries of one name, nil where a list has none.
func Zip(a, b []Entry, fn func(x, y *Entry) error) error {
	for len(a) > 0 || len(b) > 0 {
		var x, y *Entry
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			x, a = &a[0], a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			y, b = &b[0], b[1:]
		default:
			x, y, a, b = &a[0], &b[0], a[1:], b[1:]
		}
		if err := fn(x, y); err != nil {
			return err
		}
	}
	return nil
}
