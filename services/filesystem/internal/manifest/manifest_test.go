package manifest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

func open(t testing.TB) (*chunks.Store, *Tree) {
	s, err := chunks.Open(filepath.Join(t.TempDir(), "chunks"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, NewTree(s)
}

// plant makes a tree of files from path to content; a content that begins with "->" is a symlink.
func plant(t testing.TB, s *chunks.Store, tr *Tree, files map[string]string) chunks.Hash {
	b := s.Batch()
	ed, err := tr.Edit(Empty, 1)
	require.NoError(t, err)
	for _, p := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, ed.Set(p, entry(t, b, files[p])))
	}
	h, err := ed.Commit(b)
	require.NoError(t, err)
	require.NoError(t, b.Commit())
	return h
}

func entry(t testing.TB, b *chunks.Batch, content string) Entry {
	if target, ok := strings.CutPrefix(content, "->"); ok {
		return Entry{Type: Symlink, Mode: 0o777, Target: target}
	}
	if content == "dir/" {
		return Entry{Type: Dir, Mode: 0o755}
	}
	e, err := Store(b, strings.NewReader(content), 1<<40)
	require.NoError(t, err)
	e.Mode = 0o644
	return e
}

// harvest is plant's inverse; directories that hold nothing are "dir/".
func harvest(t testing.TB, s Source, tr *Tree, h chunks.Hash) map[string]string {
	out := map[string]string{}
	require.NoError(t, tr.Walk(h, func(p string, e Entry) error {
		switch e.Type {
		case File:
			r, err := Open(s, e, 0)
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			require.NoError(t, err)
			out[p] = string(b)
		case Symlink:
			out[p] = "->" + e.Target
		case Dir:
			if e.Hash == Empty {
				out[p] = "dir/"
			}
		}
		return nil
	}))
	return out
}

func TestPlantAndHarvest(t *testing.T) {
	s, tr := open(t)
	files := map[string]string{"a": "1", "b/c": "2", "b/d/e": "", "b/link": "->/etc/shadow", "empty": "dir/", "ü/ ü": "x", "new\nline": "y"}
	h := plant(t, s, tr, files)
	require.Equal(t, files, harvest(t, s, tr, h))
	require.Equal(t, files, harvest(t, s, NewTree(s), h), "from disk")
	root, err := tr.Root(h)
	require.NoError(t, err)
	require.EqualValues(t, 6, root.Files)
	require.EqualValues(t, 4, root.Size)
	e, err := tr.Lookup(h, "b")
	require.NoError(t, err)
	require.EqualValues(t, 3, e.Files)
	_, err = tr.Lookup(h, "b/x")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = tr.Lookup(h, "b/link/passwd")
	require.ErrorIs(t, err, ErrNotDir, "a symlink is never followed")
}

func TestEditsAgainstAModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s, tr := open(t)
			model := map[string]string{}
			h := Empty
			for range 6 {
				b := s.Batch()
				ed, err := tr.Edit(h, 1)
				require.NoError(t, err)
				for range 25 {
					p := fmt.Sprintf("%d/%d/%d", r.IntN(3), r.IntN(3), r.IntN(4))
					p = p[:1+2*r.IntN(3)]
					if r.IntN(4) == 0 {
						modelRemove(t, ed, model, p)
						continue
					}
					modelSet(t, ed, b, model, p, fmt.Sprint(r.IntN(5)))
				}
				before := h
				h, err = ed.Commit(b)
				require.NoError(t, err)
				require.Equal(t, model, files(harvest(t, b, tr.Through(b), h)))
				require.NoError(t, b.Commit())
				checkDiff(t, s, tr, before, h)
			}
		})
	}
}

func files(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(_, v string) bool { return v == "dir/" })
	return m
}

func modelRemove(t *testing.T, ed *Editor, model map[string]string, p string) {
	err := ed.Remove(p)
	hit := false
	for k := range model {
		if k == p || strings.HasPrefix(k, p+"/") {
			delete(model, k)
			hit = true
		}
	}
	if hit {
		require.NoError(t, err)
	}
}

func modelSet(t *testing.T, ed *Editor, b *chunks.Batch, model map[string]string, p, content string) {
	err := ed.Set(p, entry(t, b, content))
	for k := range model {
		if strings.HasPrefix(p, k+"/") {
			require.ErrorIs(t, err, ErrNotDir)
			return
		}
	}
	require.NoError(t, err)
	for k := range model {
		if strings.HasPrefix(k, p+"/") {
			delete(model, k)
		}
	}
	model[p] = content
}

// checkDiff applies the difference of a and b to a and expects b.
func checkDiff(t *testing.T, s *chunks.Store, tr *Tree, a, b chunks.Hash) {
	batch := s.Batch()
	defer batch.Abort()
	ed, err := tr.Edit(a, 1)
	require.NoError(t, err)
	require.NoError(t, tr.Diff(a, b, func(c Change) error {
		if c.To == nil {
			if err := ed.Remove(c.Path); err != nil {
				require.True(t, err == ErrNotFound || err == ErrNotDir, err)
			}
			return nil
		}
		e := *c.To
		if e.Type == Dir {
			e.Hash = chunks.Hash{}
		}
		return ed.Set(c.Path, e)
	}))
	got, err := ed.Commit(batch)
	require.NoError(t, err)
	require.Equal(t, harvest(t, s, tr, b), harvest(t, batch, tr.Through(batch), got))
}

func TestUnchangedDirectoriesAreShared(t *testing.T) {
	s, tr := open(t)
	m := map[string]string{}
	for i := range 1000 {
		m[fmt.Sprintf("d%d/f%d", i%20, i)] = fmt.Sprint(i)
	}
	h := plant(t, s, tr, m)
	b := s.Batch()
	ed, err := tr.Edit(h, 2)
	require.NoError(t, err)
	require.NoError(t, ed.Set("d3/f3", entry(t, b, "changed")))
	_, err = ed.Commit(b)
	require.NoError(t, err)
	require.Less(t, b.Bytes(), int64(6000), "one file, its directory, the root")
	b.Abort()
}

func TestBigFileThroughItsIndex(t *testing.T) {
	s, tr := open(t)
	r := rand.NewChaCha8([32]byte{1})
	big := make([]byte, 5<<20)
	_, _ = r.Read(big)
	h := plant(t, s, tr, map[string]string{"big": string(big)})
	e, err := tr.Lookup(h, "big")
	require.NoError(t, err)
	require.False(t, e.Index.IsZero())
	for _, off := range []int64{0, 1, 64 << 10, 1 << 20, 5<<20 - 1, 5 << 20} {
		rd, err := Open(s, e, off)
		require.NoError(t, err)
		var out bytes.Buffer
		_, err = io.Copy(&out, rd)
		require.NoError(t, err)
		require.True(t, bytes.Equal(big[off:], out.Bytes()), off)
	}
	_, err = Open(s, e, 5<<20+1)
	require.Error(t, err)
	live := map[chunks.Hash]bool{}
	require.NoError(t, tr.Live(h, func(h chunks.Hash) bool { was := live[h]; live[h] = true; return !was }))
	pieces, err := Pieces(s, e)
	require.NoError(t, err)
	require.Len(t, live, len(pieces)+2, "pieces, index, root")
}

func TestSplitPath(t *testing.T) {
	for _, good := range []string{"", "a", "a/b", ".hidden", "a b/ü", "-rf", strings.Repeat("a/", 63) + "a"} {
		_, err := SplitPath(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\x00b", "\xff", strings.Repeat("a", 256), strings.Repeat("a/", 64) + "a", strings.Repeat("abc/", 2000) + "a"} {
		_, err := SplitPath(bad)
		require.Error(t, err, bad)
	}
}

func TestDecodeRefuses(t *testing.T) {
	h := chunks.Sum([]byte("x"))
	for name, n := range map[string]*Node{
		"order":     {[]Entry{{Name: "b", Type: File}, {Name: "a", Type: File}}},
		"twice":     {[]Entry{{Name: "a", Type: File}, {Name: "a", Type: File}}},
		"dotdot":    {[]Entry{{Name: "..", Type: Dir, Hash: h}}},
		"slash":     {[]Entry{{Name: "a/b", Type: File}}},
		"empty":     {[]Entry{{Name: "", Type: File}}},
		"setuid":    {[]Entry{{Name: "a", Type: File, Mode: 0o4755}}},
		"type":      {[]Entry{{Name: "a", Type: 'x'}}},
		"no hash":   {[]Entry{{Name: "a", Type: Dir}}},
		"huge":      {[]Entry{{Name: "a", Type: File, Size: 1 << 60, Hash: h}}},
		"one chunk": {[]Entry{{Name: "a", Type: File, Size: 1 << 30, Hash: h}}},
	} {
		_, err := Decode(n.Encode())
		require.Error(t, err, name)
	}
	_, err := Decode(nil)
	require.Error(t, err)
	_, err = Decode(append((&Node{}).Encode(), 0))
	require.Error(t, err)
}

func FuzzDecode(f *testing.F) {
	h := chunks.Sum([]byte("x"))
	f.Add((&Node{}).Encode())
	f.Add((&Node{[]Entry{{Name: "a", Type: File, Size: 3, Hash: h, MTime: -5}, {Name: "b", Type: Dir, Mode: 0o755, Hash: h, Files: 3}, {Name: "c", Type: Symlink, Target: "../x"}, {Name: "d", Type: File, Size: 1 << 30, Hash: h, Index: h}}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Decode(b)
		if err != nil {
			return
		}
		require.Equal(t, b, n.Encode(), "what is accepted has one encoding")
		for _, e := range n.Entries {
			require.NoError(t, CheckName(e.Name))
			require.LessOrEqual(t, e.Mode, uint32(0o777))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(encodeIndex([]chunks.Piece{{Hash: chunks.Sum([]byte("a")), Size: 1}, {Hash: chunks.Sum([]byte("b")), Size: 70000}}), int64(70001))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		pieces, err := decodeIndex(b, size)
		if err == nil {
			require.Equal(t, b, append([]byte{}, encodeIndex(pieces)...))
		}
	})
}

func BenchmarkEditTenOfTenThousand(b *testing.B) {
	s, tr := open(b)
	m := map[string]string{}
	for i := range 10000 {
		m[fmt.Sprintf("d%d/e%d/f%d", i%10, i%100, i)] = fmt.Sprint(i)
	}
	h := plant(b, s, tr, m)
	n := 0
	for b.Loop() {
		batch := s.Batch()
		ed, err := tr.Edit(h, 2)
		require.NoError(b, err)
		for i := range 10 {
			n++
			require.NoError(b, ed.Set(fmt.Sprintf("d%d/e%d/f%d", i%10, i%100, i), entry(b, batch, fmt.Sprint("x", n))))
		}
		h, err = ed.Commit(batch)
		require.NoError(b, err)
		require.NoError(b, batch.Commit())
	}
}
