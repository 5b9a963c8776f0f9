package manifest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// ErrNotFound says that a path does not exist in a tree.
var ErrNotFound = errors.New("no such file or directory")

// ErrNotDir says that a path leads through something that is not a directory.
var ErrNotDir = errors.New("not a directory")

// ErrTooDeep says that a stored tree is deeper than MaxDepth: it was not made here.
var ErrTooDeep = errors.New("tree is too deep")

// Empty is the hash of the tree without entries. Its node need not be stored: Tree knows it.
var Empty = chunks.Sum((&Node{}).Encode())

// Tree reads nodes from a source and keeps the last ones decoded. Nodes are shared: nobody changes one.
type Tree struct {
	src   Source
	below *Tree // whose kept nodes are good here, too

	mu    sync.Mutex
	nodes map[chunks.Hash]*Node
	size  int // entries in nodes
	large []*largeNode
}

// cacheEntries bounds what a Tree keeps, in entries of nodes: some 200 bytes each.
const cacheEntries = 100_000

// NewTree reads from src.
func NewTree(src Source) *Tree { return &Tree{src: src, nodes: map[chunks.Hash]*Node{}} }

// Node gives the node with that hash.
func (t *Tree) Node(h chunks.Hash) (*Node, error) {
	if h == Empty {
		return &Node{}, nil
	}
	for u := t; u != nil; u = u.below {
		if n := u.kept(h); n != nil {
			return n, nil
		}
	}
	b, err := t.src.Get(h)
	if err != nil {
		return nil, err
	}
	n, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", h, err)
	}
	t.keep(h, n)
	return n, nil
}

func (t *Tree) keep(h chunks.Hash, n *Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(n.Entries) >= cacheEntries/2 {
		t.keepLarge(h, n)
		return
	}
	if t.nodes[h] != nil {
		return
	}
	t.nodes[h] = n
	t.size += len(n.Entries) + 1
	for k, old := range t.nodes {
		if t.size <= cacheEntries {
			break
		}
		if k != h { // any other one: the order of a map is as good as chance
			t.size -= len(old.Entries) + 1
			delete(t.nodes, k)
		}
	}
}

// Through gives a Tree that also sees what b has not committed yet. What it reads is not kept in t, so a batch that
// is thrown away leaves no trace there.
func (t *Tree) Through(b *chunks.Batch) *Tree {
	u := NewTree(b)
	u.below = t
	return u
}

func (t *Tree) kept(h chunks.Hash) *Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[h]; n != nil {
		return n
	}
	return t.keptLarge(h)
}

// Root is the entry of a whole tree.
func (t *Tree) Root(h chunks.Hash) (Entry, error) {
	n, err := t.Node(h)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Type: Dir, Mode: 0o755, Hash: h}
	e.Files, e.Size = n.Totals()
	return e, nil
}

// Lookup gives the entry at path in the tree root. Symlinks are not followed.
func (t *Tree) Lookup(root chunks.Hash, path string) (Entry, error) {
	parts, err := SplitPath(path)
	if err != nil {
		return Entry{}, err
	}
	e, err := t.Root(root)
	if err != nil {
		return Entry{}, err
	}
	for _, p := range parts {
		if e.Type != Dir {
			return Entry{}, ErrNotDir
		}
		n, err := t.Node(e.Hash)
		if err != nil {
			return Entry{}, err
		}
		var ok bool
		if e, ok = n.Find(p); !ok {
			return Entry{}, ErrNotFound
		}
	}
	return e, nil
}

// ErrSkipDir, returned by Walk's function for a directory, leaves out what is in it.
var ErrSkipDir = errors.New("skip this directory")

// Walk calls fn for everything below root in the order of the tree: a directory before what is in it.
func (t *Tree) Walk(root chunks.Hash, fn func(path string, e Entry) error) error {
	return t.walk(root, "", "", 0, fn)
}

// WalkFrom is Walk without what comes before the path from. The directories above it come, too.
func (t *Tree) WalkFrom(root chunks.Hash, from string, fn func(path string, e Entry) error) error {
	return t.walk(root, "", from, 0, fn)
}

func (t *Tree) walk(h chunks.Hash, dir, from string, depth int, fn func(string, Entry) error) error {
	if depth > MaxDepth {
		return ErrTooDeep
	}
	n, err := t.Node(h)
	if err != nil {
		return err
	}
	first, below, _ := strings.Cut(from, "/")
	for _, e := range n.Entries[n.search(first):] {
		path := Join(dir, e.Name)
		err := fn(path, e)
		if err == ErrSkipDir {
			continue
		}
		if err != nil {
			return err
		}
		if e.Type == Dir {
			from := ""
			if e.Name == first {
				from = below
			}
			if err := t.walk(e.Hash, path, from, depth+1, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// Live calls add for every chunk that root needs: nodes, indexes, contents. A node for which add answers
// false is known already, and what is below it too.
func (t *Tree) Live(root chunks.Hash, add func(chunks.Hash) bool) error {
	return t.live(root, 0, add)
}

func (t *Tree) live(h chunks.Hash, depth int, add func(chunks.Hash) bool) error {
	if depth > MaxDepth {
		return ErrTooDeep
	}
	if !add(h) {
		return nil
	}
	n, err := t.Node(h)
	if err != nil {
		return err
	}
	for _, e := range n.Entries {
		switch {
		case e.Type == Dir:
			err = t.live(e.Hash, depth+1, add)
		case e.Type == File && e.Size > 0 && e.Index.IsZero():
			add(e.Hash)
		case e.Type == File && e.Size > 0 && add(e.Index):
			var pieces []chunks.Piece
			pieces, err = Pieces(t.src, e)
			for _, p := range pieces {
				add(p.Hash)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
