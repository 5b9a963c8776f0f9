package chunks

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func open(t testing.TB) *Store {
	s, err := Open(filepath.Join(t.TempDir(), "chunks"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func noise(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func TestPutIsSeenByOthersOnlyAfterCommit(t *testing.T) {
	s := open(t)
	b := s.Batch()
	h, err := b.Put([]byte("hello"))
	require.NoError(t, err)
	got, err := b.Get(h)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	_, err = s.Get(h)
	require.ErrorIs(t, err, ErrMissing)
	require.NoError(t, b.Commit())
	got, err = b.Get(h)
	require.NoError(t, err, "also through the batch")
	require.Equal(t, "hello", string(got))
	got, err = s.Get(h)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	_, err = b.Put([]byte("late"))
	require.Error(t, err)
}

func TestAbortAndReopenLeaveNothing(t *testing.T) {
	s := open(t)
	b := s.Batch()
	h, err := b.Put([]byte("gone"))
	require.NoError(t, err)
	b.Abort()
	b.Abort()
	left := s.Batch()
	_, err = left.Put([]byte("left by a crash"))
	require.NoError(t, err)
	again, err := Open(s.path)
	require.NoError(t, err)
	defer again.Close()
	_, err = again.Get(h)
	require.ErrorIs(t, err, ErrMissing)
	entries, err := os.ReadDir(filepath.Join(s.path, incoming))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestContentIsCheckedAgainstItsName(t *testing.T) {
	s := open(t)
	for _, content := range [][]byte{bytes.Repeat([]byte("text "), 1000), noise(1, 1000)} {
		b := s.Batch()
		h, err := b.Put(content)
		require.NoError(t, err)
		require.NoError(t, b.Commit())
		got, err := s.Get(h)
		require.NoError(t, err)
		require.Equal(t, content, got)
		file := filepath.Join(s.path, name(h))
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(file, 0o600))
		raw[len(raw)/2] ^= 1
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		_, err = s.Get(h)
		require.ErrorIs(t, err, ErrDamaged)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err = s.Get(h)
		require.ErrorIs(t, err, ErrDamaged)
	}
}

func join(t *testing.T, b *Batch, pieces []Piece) []byte {
	var out []byte
	for _, p := range pieces {
		c, err := b.Get(p.Hash)
		require.NoError(t, err)
		require.Len(t, c, int(p.Size))
		out = append(out, c...)
	}
	return out
}

func TestCutGivesTheContentBack(t *testing.T) {
	s := open(t)
	for _, n := range []int{0, 1, 100, CutMin - 1, CutMin, CutMin + 1, CutMax, 3 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := s.Batch()
			content := noise(7, n)
			// One byte less than asked at a time, to catch readers that trust in full reads.
			pieces, h, size, err := b.Cut(io.MultiReader(bytes.NewReader(content[:n/3]), bytes.NewReader(content[n/3:])), 1<<40)
			require.NoError(t, err)
			require.Equal(t, int64(n), size)
			require.Equal(t, Sum(content), h)
			require.Equal(t, content, append([]byte{}, join(t, b, pieces)...))
			if n > 0 && n < CutMin {
				require.Equal(t, []Piece{{h, size}}, pieces)
			}
			for _, p := range pieces {
				require.LessOrEqual(t, p.Size, int64(CutMax))
			}
			b.Abort()
		})
	}
}

func TestCutRefusesTooLong(t *testing.T) {
	s := open(t)
	for _, n := range []int{101, 3 << 20} {
		b := s.Batch()
		_, _, _, err := b.Cut(bytes.NewReader(noise(1, n)), 100)
		require.ErrorIs(t, err, ErrTooLong)
		b.Abort()
	}
}

func TestAnInsertionChangesFewChunks(t *testing.T) {
	s := open(t)
	b := s.Batch()
	content := noise(3, 8<<20)
	first, _, _, err := b.Cut(bytes.NewReader(content), 1<<40)
	require.NoError(t, err)
	known := map[Hash]bool{}
	for _, p := range first {
		known[p.Hash] = true
	}
	second, _, _, err := b.Cut(io.MultiReader(bytes.NewReader(content[:4<<20]), bytes.NewReader([]byte("inserted")), bytes.NewReader(content[4<<20:])), 1<<40)
	require.NoError(t, err)
	fresh := 0
	for _, p := range second {
		if !known[p.Hash] {
			fresh++
		}
	}
	require.LessOrEqual(t, fresh, 4)
	require.Greater(t, len(second), 20)
	b.Abort()
}

func TestSweepSparesTheLiveAndTheYoung(t *testing.T) {
	s := open(t)
	b := s.Batch()
	var hs []Hash
	for i := range 40 {
		h, err := b.Put(fmt.Appendf(nil, "chunk %d", i))
		require.NoError(t, err)
		hs = append(hs, h)
	}
	require.NoError(t, b.Commit())
	old := time.Now().Add(-2 * time.Hour)
	for _, h := range hs {
		require.NoError(t, os.Chtimes(filepath.Join(s.path, name(h)), old, old))
	}
	// Relied on again: as young as new.
	ok, err := s.Has(hs[1])
	require.NoError(t, err)
	require.True(t, ok)
	sw, err := s.Sweep(func(h Hash) bool { return h == hs[0] }, time.Hour, time.Now())
	require.NoError(t, err)
	require.Equal(t, 38, sw.Removed)
	require.Equal(t, 2, sw.Kept)
	for i, h := range hs {
		_, err := s.Get(h)
		if i < 2 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrMissing)
		}
	}
}

func TestParseHash(t *testing.T) {
	h := Sum([]byte("x"))
	got, err := ParseHash(h.String())
	require.NoError(t, err)
	require.Equal(t, h, got)
	for _, bad := range []string{"", "xy", h.String() + "0", "g" + h.String()[1:], "../../../../etc/passwd"} {
		_, err := ParseHash(bad)
		require.Error(t, err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 10, 30, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b)
			i := uint64(0)
			for b.Loop() {
				batch := s.Batch()
				for range n {
					i++
					_, err := batch.Put(fmt.Appendf(noise(i, 2000), "%d", i))
					require.NoError(b, err)
				}
				require.NoError(b, batch.Commit())
			}
		})
	}
}

func BenchmarkCut(b *testing.B) {
	s := open(b)
	content := noise(1, 64<<20)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		batch := s.Batch()
		_, _, _, err := batch.Cut(bytes.NewReader(content), 1<<40)
		require.NoError(b, err)
		batch.Abort()
	}
}
