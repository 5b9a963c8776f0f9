package merge

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

type world struct {
	t    testing.TB
	s    *chunks.Store
	b    *chunks.Batch
	tree *manifest.Tree
}

func newWorld(t testing.TB) *world {
	s, err := chunks.Open(filepath.Join(t.TempDir(), "chunks"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	b := s.Batch()
	t.Cleanup(b.Abort)
	return &world{t, s, b, manifest.NewTree(s).Through(b)}
}

type files map[string]string

// plant: "->x" is a symlink, "dir/" an empty directory, a leading "+x " sets the executable bit.
func (w *world) plant(m files) chunks.Hash {
	ed, err := w.tree.Edit(manifest.Empty, 1)
	require.NoError(w.t, err)
	for _, p := range slices.Sorted(maps.Keys(m)) {
		content := m[p]
		e := manifest.Entry{Type: manifest.Dir, Mode: 0o755}
		if target, ok := strings.CutPrefix(content, "->"); ok {
			e = manifest.Entry{Type: manifest.Symlink, Mode: 0o777, Target: target}
		} else if content != "dir/" {
			text, exec := strings.CutPrefix(content, "+x ")
			e, err = manifest.Store(w.b, strings.NewReader(text), 1<<40)
			require.NoError(w.t, err)
			e.Mode = 0o644
			if exec {
				e.Mode = 0o755
			}
		}
		require.NoError(w.t, ed.Set(p, e))
	}
	h, err := ed.Commit(w.b)
	require.NoError(w.t, err)
	return h
}

func (w *world) harvest(h chunks.Hash) files {
	out := files{}
	require.NoError(w.t, w.tree.Walk(h, func(p string, e manifest.Entry) error {
		switch {
		case e.Type == manifest.Symlink:
			out[p] = "->" + e.Target
		case e.Type == manifest.Dir && e.Hash == manifest.Empty:
			out[p] = "dir/"
		case e.Type == manifest.File:
			r, err := manifest.Open(w.b, e, 0)
			require.NoError(w.t, err)
			b, err := io.ReadAll(r)
			require.NoError(w.t, err)
			if out[p] = string(b); e.Mode&0o100 != 0 {
				out[p] = "+x " + out[p]
			}
		}
		return nil
	}))
	return out
}

func (w *world) merge(base, ours, theirs files) (files, []string) {
	r, err := Trees(w.tree, w.b, w.plant(base), w.plant(ours), w.plant(theirs), "conflict-T-2", time.Unix(5, 0))
	require.NoError(w.t, err)
	return w.harvest(r.Root), r.Conflicts
}

func TestTrees(t *testing.T) {
	for name, c := range map[string]struct {
		base, ours, theirs, want files
		conflicts                []string
	}{
		"untouched paths apply": {
			files{"a": "1", "b": "1", "d/c": "1"}, files{"a": "2", "b": "1", "d/c": "1", "new": "o"}, files{"a": "1", "b": "1", "d/c": "3", "d/n": "t"},
			files{"a": "2", "b": "1", "d/c": "3", "d/n": "t", "new": "o"}, nil},
		"text merges": {
			files{"f": "1\n2\n3\n"}, files{"f": "one\n2\n3\n"}, files{"f": "+x 1\n2\nthree\n"},
			files{"f": "+x one\n2\nthree\n"}, nil},
		"text conflict keeps both": {
			files{"f": "1\n"}, files{"f": "2\n"}, files{"f": "3\n"},
			files{"f": "2\n", "f.conflict-T-2": "3\n"}, []string{"f"}},
		"binary keeps both": {
			files{"d/f": "1\x00"}, files{"d/f": "2\x00"}, files{"d/f": "3\x00"},
			files{"d/f": "2\x00", "d/f.conflict-T-2": "3\x00"}, []string{"d/f"}},
		"both add differently": {
			files{}, files{"f": "a"}, files{"f": "b"},
			files{"f": "a", "f.conflict-T-2": "b"}, []string{"f"}},
		"both add the same": {
			files{}, files{"f": "a"}, files{"f": "a"}, files{"f": "a"}, nil},
		"conflict name is taken": {
			files{"f": "1"}, files{"f": "2", "f.conflict-T-2": "x"}, files{"f": "3"},
			files{"f": "2", "f.conflict-T-2": "x", "f.conflict-T-2-2": "3"}, []string{"f"}},
		"edit wins over our removal": {
			files{"d/f": "1", "d/g": "1"}, files{}, files{"d/f": "2", "d/g": "1"},
			files{"d/f": "2"}, []string{"d/f"}},
		"edit wins over their removal": {
			files{"d/f": "1", "d/g": "1"}, files{"d/f": "2", "d/g": "1"}, files{},
			files{"d/f": "2"}, []string{"d/f"}},
		"both remove": {
			files{"d/f": "1"}, files{}, files{}, files{}, nil},
		"removal of a directory is followed": {
			files{"d/f": "1", "x": "1"}, files{"d/f": "1", "x": "2"}, files{"x": "1"}, files{"x": "2"}, nil},
		"mode and content": {
			files{"f": "1"}, files{"f": "2"}, files{"f": "+x 1"}, files{"f": "+x 2"}, nil},
		"directory against file": {
			files{"x": "1"}, files{"x": "2"}, files{"x/y": "3"},
			files{"x": "2", "x.conflict-T-2/y": "3"}, []string{"x"}},
		"file against directory": {
			files{"x": "1"}, files{"x/y": "3"}, files{"x": "2"},
			files{"x/y": "3", "x.conflict-T-2": "2"}, []string{"x"}},
		"symlinks": {
			files{"l": "->a"}, files{"l": "->b"}, files{"l": "->c"},
			files{"l": "->b", "l.conflict-T-2": "->c"}, []string{"l"}},
		"both add a directory": {
			files{}, files{"d/a": "1", "d/e": "dir/"}, files{"d/b": "1"}, files{"d/a": "1", "d/b": "1", "d/e": "dir/"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, conflicts := newWorld(t).merge(c.base, c.ours, c.theirs)
			require.Equal(t, c.want, got)
			require.Equal(t, c.conflicts, conflicts)
		})
	}
}

func TestLongNameOfAConflictIsCutBetweenRunes(t *testing.T) {
	long := strings.Repeat("ü", 127)
	got, _ := newWorld(t).merge(files{}, files{long: "a"}, files{long: "b"})
	require.Len(t, got, 2)
	for p := range got {
		require.NoError(t, manifest.CheckName(p))
	}
}

func TestRandomTrees(t *testing.T) {
	w := newWorld(t)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		base := randomTree(r, files{})
		ours, theirs := randomTree(r, base), randomTree(r, base)
		what := fmt.Sprintf("seed %d", seed)
		for _, x := range []files{ours, theirs} {
			got, c := w.merge(base, x, base)
			require.Equal(t, x, got, what)
			require.Empty(t, c, what)
			got, c = w.merge(base, base, x)
			require.Equal(t, x, got, what)
			require.Empty(t, c, what)
			got, c = w.merge(base, x, x)
			require.Equal(t, x, got, what)
			require.Empty(t, c, what)
		}
		ab, ca := w.merge(base, ours, theirs)
		ba, cb := w.merge(base, theirs, ours)
		require.Equal(t, ca, cb, what)
		require.Equal(t, contents(ab), contents(ba), what+": whichever side, nothing gets lost")
		checkNothingLost(t, what, base, ours, theirs, ab)
	}
}

// contents counts what is there, whatever it is called.
func contents(m files) map[string]int {
	out := map[string]int{}
	for _, c := range m {
		out[c]++
	}
	return out
}

// checkNothingLost: what a side wrote and the other did not touch is at its place; a leaf that both wrote is
// there in some form.
func checkNothingLost(t *testing.T, what string, base, ours, theirs, got files) {
	for p, c := range theirs {
		if base[p] == c || c == "dir/" {
			continue
		}
		if ours[p] == base[p] && !under(ours, p) {
			require.Equal(t, c, got[p], "%s: %s", what, p)
			continue
		}
		require.Contains(t, slices.Collect(maps.Values(got)), c, "%s: %s", what, p)
	}
}

// under reports whether m has something below p, or a leaf above it.
func under(m files, p string) bool {
	for q := range m {
		if strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/") {
			return true
		}
	}
	return false
}

func randomTree(r *rand.Rand, from files) files {
	out := maps.Clone(from)
	for range 1 + r.IntN(8) {
		p := fmt.Sprintf("%d/%d/%d", r.IntN(2), r.IntN(3), r.IntN(2))[:1+2*r.IntN(3)]
		maps.DeleteFunc(out, func(q, _ string) bool {
			return q == p || strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/")
		})
		if r.IntN(3) > 0 {
			out[p] = fmt.Sprintf("%d\x00", r.IntN(1000)) // not text: it merges or it does not
		}
	}
	return out
}
