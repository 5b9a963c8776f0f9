// Package merge joins two versions of a tree of files that began as the same third one. What only one side touched is taken from
// that side. A text that both edited is merged line by line. Where that is not possible both versions stay, and the path is named as
// a conflict: ours at its place, theirs beside it under a name that says whose it is.
package merge

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Result is a merged tree.
type Result struct {
	Root      chunks.Hash
	Conflicts []string // paths of which both versions were kept, or whose removal was not followed; sorted
}

// merger is one merge under way.
type merger struct {
	tree      *manifest.Tree
	batch     *chunks.Batch
	suffix    string
	now       int64
	conflicts []string
}

// Trees merges theirs into ours; both began as base. New content and nodes go into b, which the caller commits; tree must read
// through b. Theirs of a conflict is kept under its name with "."+suffix added. An edit wins over a removal.
func Trees(tree *manifest.Tree, b *chunks.Batch, base, ours, theirs chunks.Hash, suffix string, now time.Time) (Result, error) {
	m := &merger{tree: tree, batch: b, suffix: suffix, now: now.UnixNano()}
	root, _, err := m.dir("", base, ours, theirs, 0)
	if err != nil {
		return Result{}, err
	}
	slices.Sort(m.conflicts)
	return Result{Root: root, Conflicts: slices.Compact(m.conflicts)}, nil
}

// dir merges three directories; a missing one is the empty one.
func (m *merger) dir(path string, base, ours, theirs chunks.Hash, depth int) (chunks.Hash, *manifest.Node, error) {
	if depth > manifest.MaxDepth {
		return chunks.Hash{}, nil, manifest.ErrTooDeep
	}
	if ours == theirs || base == theirs {
		n, err := m.tree.Node(ours)
		return ours, n, err
	}
	if base == ours {
		n, err := m.tree.Node(theirs)
		return theirs, n, err
	}
	var nodes [3]*manifest.Node
	for i, h := range []chunks.Hash{base, ours, theirs} {
		n, err := m.tree.Node(h)
		if err != nil {
			return h, nil, err
		}
		nodes[i] = n
	}
	out := &manifest.Node{}
	var aside []manifest.Entry
	err := zip3(nodes[0].Entries, nodes[1].Entries, nodes[2].Entries, func(b, o, t *manifest.Entry) error {
		at, beside, err := m.entry(path, b, o, t, depth)
		if at != nil {
			out.Entries = append(out.Entries, *at)
		}
		if beside != nil {
			aside = append(aside, *beside)
		}
		return err
	})
	if err != nil {
		return chunks.Hash{}, nil, err
	}
	for _, e := range aside {
		e.Name = m.free(e.Name, out)
		out.Entries = slices.Insert(out.Entries, place(out, e.Name), e)
	}
	if len(out.Entries) > manifest.MaxEntries {
		return chunks.Hash{}, nil, fmt.Errorf("directory %q would have more than %d entries", path, manifest.MaxEntries)
	}
	h, err := manifest.Save(m.batch, out)
	return h, out, err
}

// entry merges one name. beside is theirs where both have to stay.
func (m *merger) entry(dir string, b, o, t *manifest.Entry, depth int) (at, beside *manifest.Entry, err error) {
	switch {
	case same(o, t), same(b, t):
		return o, nil, nil
	case same(b, o):
		return t, nil, nil
	}
	path := manifest.Join(dir, name(b, o, t))
	dirOrNone := func(e *manifest.Entry) bool { return e == nil || e.Type == manifest.Dir }
	if dirOrNone(o) && dirOrNone(t) {
		at, err = m.subdir(path, b, o, t, depth)
		return at, nil, err
	}
	if o == nil || t == nil { // one removed what the other edited
		m.conflicts = append(m.conflicts, path)
		if o == nil {
			return t, nil, nil
		}
		return o, nil, nil
	}
	if o.Type == manifest.File && t.Type == manifest.File {
		at, err = m.file(b, o, t)
		if at != nil || err != nil {
			return at, nil, err
		}
	}
	m.conflicts = append(m.conflicts, path)
	return o, t, nil
}

// subdir merges directories of which one may be missing on one side.
func (m *merger) subdir(path string, b, o, t *manifest.Entry, depth int) (*manifest.Entry, error) {
	hash := func(e *manifest.Entry) chunks.Hash {
		if e == nil || e.Type != manifest.Dir {
			return manifest.Empty
		}
		return e.Hash
	}
	h, n, err := m.dir(path, hash(b), hash(o), hash(t), depth+1)
	if err != nil {
		return nil, err
	}
	removed := (o == nil || t == nil) && b != nil && b.Type == manifest.Dir
	if removed && len(n.Entries) == 0 {
		return nil, nil
	}
	e := pick(o, t)
	e.Hash = h
	e.Files, e.Size = n.Totals()
	if o != nil && t != nil {
		e.Mode, e.MTime = mode(b, o, t), max(o.MTime, t.MTime)
	}
	return &e, nil
}

// file merges two files, nil if both must stay.
func (m *merger) file(b, o, t *manifest.Entry) (*manifest.Entry, error) {
	e := *o
	e.Mode = mode(b, o, t)
	isFile := b != nil && b.Type == manifest.File
	switch {
	case o.Hash == t.Hash, isFile && b.Hash == t.Hash:
		return &e, nil
	case isFile && b.Hash == o.Hash:
		e.Size, e.Hash, e.Index, e.MTime = t.Size, t.Hash, t.Index, t.MTime
		return &e, nil
	case !isFile:
		return nil, nil
	}
	var texts [3]string
	for i, x := range []*manifest.Entry{b, o, t} {
		s, ok, err := m.text(*x)
		if err != nil || !ok {
			return nil, err
		}
		texts[i] = s
	}
	merged, ok := Text(texts[0], texts[1], texts[2])
	if !ok {
		return nil, nil
	}
	x, err := manifest.Store(m.batch, strings.NewReader(merged), 3*MaxText)
	e.Size, e.Hash, e.Index, e.MTime = x.Size, x.Hash, x.Index, m.now
	return &e, err
}

func (m *merger) text(e manifest.Entry) (string, bool, error) {
	if e.Size > MaxText {
		return "", false, nil
	}
	r, err := manifest.Open(m.batch, e, 0)
	if err != nil {
		return "", false, err
	}
	b, err := io.ReadAll(r)
	return string(b), IsText(b), err
}

// free is a name for theirs beside ours: at most 255 bytes, cut between runes, not taken.
func (m *merger) free(name string, n *manifest.Node) string {
	for i := 1; ; i++ {
		suffix := "." + m.suffix
		if i > 1 {
			suffix += fmt.Sprintf("-%d", i)
		}
		stem := name
		for len(stem)+len(suffix) > manifest.MaxName {
			_, size := utf8.DecodeLastRuneInString(stem)
			stem = stem[:len(stem)-size]
		}
		if _, taken := n.Find(stem + suffix); !taken {
			return stem + suffix
		}
	}
}

func place(n *manifest.Node, name string) int {
	i, _ := slices.BinarySearchFunc(n.Entries, name, func(e manifest.Entry, s string) int { return strings.Compare(e.Name, s) })
	return i
}

// mode merges permission bits; ours where both changed them.
func mode(b, o, t *manifest.Entry) uint32 {
	if b != nil && b.Mode == o.Mode {
		return t.Mode
	}
	return o.Mode
}

func same(x, y *manifest.Entry) bool {
	if x == nil || y == nil {
		return x == y
	}
	return manifest.Same(*x, *y)
}

func pick(o, t *manifest.Entry) manifest.Entry {
	if o != nil {
		return *o
	}
	return *t
}

func name(es ...*manifest.Entry) string {
	for _, e := range es {
		if e != nil {
			return e.Name
		}
	}
	return ""
}

// zip3 goes through three sorted lists together.
func zip3(b, o, t []manifest.Entry, fn func(b, o, t *manifest.Entry) error) error {
	take := func(l *[]manifest.Entry, name string) *manifest.Entry {
		if len(*l) == 0 || (*l)[0].Name != name {
			return nil
		}
		e := (*l)[0]
		*l = (*l)[1:]
		return &e
	}
	for {
		first, any := "", false
		for _, l := range [][]manifest.Entry{b, o, t} {
			if len(l) > 0 && (!any || l[0].Name < first) {
				first, any = l[0].Name, true
			}
		}
		if !any {
			return nil
		}
		if err := fn(take(&b, first), take(&o, first), take(&t, first)); err != nil {
			return err
		}
	}
}
