package tree

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Limits of what is read back from a sandbox.
type Limits struct {
	Files int64 // entries in the changed part
	Bytes int64 // of their contents
}

// LimitError says which limit the changes of a sandbox exceed, and where.
type LimitError struct {
	What string // "files" or "bytes"
	Path string
	Max  int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the changes have more than %d %s at %q", e.Max, e.What, e.Path)
}

// Skipped is something in a sandbox's tree that can't be stored.
type Skipped struct {
	Path   string // as Go quotes it if it is not valid UTF-8
	Reason string
}

// maxSkipped bounds what is reported; more are only counted by the last entry's path being "…".
const maxSkipped = 100

// reader turns the upper part of an overlay into a tree.
type reader struct {
	tree    *manifest.Tree
	batch   *chunks.Batch
	base    chunks.Hash
	files   int64
	bytes   int64
	limits  Limits
	skipped []Skipped
}

// Read gives the tree that the sandbox sees: base with the changes in upper. tree must read through b, into which new content goes. Nothing in upper
// is followed, waited for, or believed: symlinks are stored as they are; FIFOs, sockets, devices and names that are not UTF-8 are
// left out and reported, the base's entry of that name stays. It is no error if the sandbox still writes.
func Read(tree *manifest.Tree, b *chunks.Batch, base chunks.Hash, upper *dirs.Dir, limits Limits) (chunks.Hash, []Skipped, error) {
	r := &reader{tree: tree, batch: b, base: base, limits: limits}
	root, _, err := r.dir(upper, "", base, 0)
	return root, r.skipped, err
}

func (r *reader) skip(path, reason string) {
	if len(r.skipped) == maxSkipped {
		r.skipped = append(r.skipped, Skipped{"…", "and more"})
	}
	if len(r.skipped) < maxSkipped {
		if !strings.HasPrefix(path, `"`) {
			if q := fmt.Sprintf("%q", path); q != `"`+path+`"` {
				path = q
			}
		}
		r.skipped = append(r.skipped, Skipped{path, reason})
	}
}

// dir reads one directory over the node lower.
func (r *reader) dir(d *dirs.Dir, path string, lower chunks.Hash, depth int) (chunks.Hash, *manifest.Node, error) {
	below, err := r.tree.Node(lower)
	if err != nil {
		return lower, nil, err
	}
	names, more, err := d.Names(manifest.MaxEntries)
	if err != nil {
		return lower, nil, err
	}
	if more {
		return lower, nil, &LimitError{"files", path, manifest.MaxEntries}
	}
	slices.Sort(names)
	changed := map[string]*manifest.Entry{} // nil: removed
	for _, name := range names {
		if r.files++; r.files > r.limits.Files {
			return lower, nil, &LimitError{"files", path, r.limits.Files}
		}
		if err := r.entry(d, manifest.Join(path, name), name, below, depth, changed); err != nil {
			if errors.Is(err, fs.ErrNotExist) { // gone since it was listed
				continue
			}
			return lower, nil, err
		}
	}
	n, same := combine(below, changed)
	if same {
		return lower, below, nil
	}
	h, err := manifest.Save(r.batch, n)
	return h, n, err
}

// combine applies changes to a node; same says that nothing is different.
func combine(below *manifest.Node, changed map[string]*manifest.Entry) (n *manifest.Node, same bool) {
	n, same = &manifest.Node{}, true
	for _, e := range below.Entries {
		c, ok := changed[e.Name]
		delete(changed, e.Name)
		switch {
		case !ok || c != nil && manifest.Same(*c, e):
			n.Entries = append(n.Entries, e)
			continue
		case c != nil:
			n.Entries = append(n.Entries, *c)
		}
		same = false
	}
	for _, c := range changed {
		if c != nil {
			n.Entries = append(n.Entries, *c)
			same = false
		}
	}
	slices.SortFunc(n.Entries, func(a, b manifest.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return n, same
}

// entry reads one name into changed.
func (r *reader) entry(d *dirs.Dir, path, name string, below *manifest.Node, depth int, changed map[string]*manifest.Entry) error {
	st, err := d.Stat(name)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 {
		changed[name] = nil
		return nil
	}
	if err := manifest.CheckName(name); err != nil {
		r.skip(path, "its name is not valid UTF-8")
		return nil
	}
	if len(path) > manifest.MaxPath {
		r.skip(path[:200]+"…", "its path is too long")
		return nil
	}
	e := manifest.Entry{Name: name, Mode: st.Mode & 0o777, MTime: st.Mtim.Nano()}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return r.subdir(d, path, e, below, depth, changed)
	case unix.S_IFLNK:
		target, err := d.Readlink(name)
		if err != nil {
			return err
		}
		e.Type, e.Target, e.Mode = manifest.Symlink, target, 0o777
		changed[name] = &e
	case unix.S_IFREG:
		return r.file(d, path, e, changed)
	default:
		r.skip(path, kind(st.Mode)+" can't be stored")
	}
	return nil
}

func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

func (r *reader) file(d *dirs.Dir, path string, e manifest.Entry, changed map[string]*manifest.Entry) error {
	f, st, err := d.OpenFile(e.Name)
	if errors.Is(err, dirs.ErrNotRegular) {
		return nil // replaced since it was looked at
	}
	if err != nil {
		return err
	}
	defer f.Close()
	left := r.limits.Bytes - r.bytes
	if st.Size > left { // before reading: a sparse file can claim any size
		return &LimitError{"bytes", path, r.limits.Bytes}
	}
	x, err := manifest.Store(r.batch, f, left)
	if errors.Is(err, chunks.ErrTooLong) {
		return &LimitError{"bytes", path, r.limits.Bytes}
	}
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	r.bytes += x.Size
	e.Type, e.Size, e.Hash, e.Index = manifest.File, x.Size, x.Hash, x.Index
	changed[e.Name] = &e
	return nil
}

func (r *reader) subdir(d *dirs.Dir, path string, e manifest.Entry, below *manifest.Node, depth int, changed map[string]*manifest.Entry) error {
	if depth+1 >= manifest.MaxDepth {
		r.skip(path, "it is too deep")
		return nil
	}
	sub, err := d.Sub(e.Name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // replaced since it was looked at
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	lower, err := r.lower(sub, e.Name, below)
	if err != nil {
		return err
	}
	h, n, err := r.dir(sub, path, lower, depth+1)
	if err != nil {
		return err
	}
	e.Type, e.Hash = manifest.Dir, h
	e.Files, e.Size = n.Totals()
	changed[e.Name] = &e
	return nil
}

// lower is the directory of the base that shows through sub: the one of its name, another one after a rename, or none.
func (r *reader) lower(sub *dirs.Dir, name string, below *manifest.Node) (chunks.Hash, error) {
	opaque, err := sub.Xattr("trusted.overlay.opaque")
	if err != nil {
		return manifest.Empty, err
	}
	redirect, err := sub.Xattr("trusted.overlay.redirect")
	if err != nil {
		return manifest.Empty, err
	}
	var e manifest.Entry
	var ok bool
	switch {
	case opaque == "y":
	case strings.HasPrefix(redirect, "/"):
		e, err = r.tree.Lookup(r.base, redirect[1:])
		if ok = err == nil; errors.Is(err, manifest.ErrNotFound) || errors.Is(err, manifest.ErrNotDir) {
			err = nil
		}
	case redirect != "":
		e, ok = below.Find(redirect)
	default:
		e, ok = below.Find(name)
	}
	if err != nil || !ok || e.Type != manifest.Dir {
		return manifest.Empty, err
	}
	return e.Hash, nil
}
