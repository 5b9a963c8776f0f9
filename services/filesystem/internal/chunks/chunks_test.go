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
	dir := t.TempDir()
	s, err := Open(dir)
	require.NoError(t, err)
	defer s.Close()
	b := s.Batch()
	h, err := b.Put([]byte("gone"))
	require.NoError(t, err)
	b.Abort()
	b.Abort()
	left := s.Batch()
	_, err = left.Put([]byte("left by a crash"))
	require.NoError(t, err)
	kept := s.Batch()
	k, err := kept.Put([]byte("kept"))
	require.NoError(t, err)
	require.NoError(t, kept.Commit())
	again, err := Open(dir)
	require.NoError(t, err)
	defer again.Close()
	_, err = again.Get(h)
	require.ErrorIs(t, err, ErrMissing)
	got, err := again.Get(k)
	require.NoError(t, err)
	require.Equal(t, "kept", string(got))
	entries, err := os.ReadDir(filepath.Join(dir, incoming))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestContentIsCheckedAgainstItsName(t *testing.T) {
	for _, content := range [][]byte{bytes.Repeat([]byte("text "), 1000), noise(1, 1000)} {
		dir := t.TempDir()
		s, err := Open(dir)
		require.NoError(t, err)
		defer s.Close()
		b := s.Batch()
		h, err := b.Put(content)
		require.NoError(t, err)
		require.NoError(t, b.Commit())
		got, err := s.Get(h)
		require.NoError(t, err)
		require.Equal(t, content, got)
		file := filepath.Join(dir, packName(1))
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		raw[5] ^= 1
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		_, err = s.Get(h)
		require.ErrorIs(t, err, ErrDamaged)
		require.NoError(t, os.WriteFile(file, raw[:3], 0o600))
		_, err = s.Get(h)
		require.ErrorIs(t, err, ErrDamaged)
		_, err = Open(dir)
		require.ErrorIs(t, err, ErrDamaged, "a store that is not whole is not served")
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

// age makes everything committed so far look d old.
func age(s *Store, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, p := range s.packs {
		p.made = p.made.Add(-d)
		s.packs[n] = p
	}
	for h, p := range s.index {
		p.touched -= int64(d / time.Second)
		s.index[h] = p
	}
}

func TestSweepSparesTheLiveAndTheYoung(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	require.NoError(t, err)
	defer s.Close()
	var hs []Hash
	for i := range 40 {
		b := s.Batch()
		for j := range 3 {
			h, err := b.Put(fmt.Appendf(nil, "chunk %d", i*3+j))
			require.NoError(t, err)
			hs = append(hs, h)
		}
		require.NoError(t, b.Commit())
	}
	age(s, 2*time.Hour)
	require.True(t, s.Has(hs[1]), "relied on again: as young as new")
	young := s.Batch()
	y, err := young.Put([]byte("young"))
	require.NoError(t, err)
	require.NoError(t, young.Commit())
	live := map[Hash]bool{hs[0]: true, hs[50]: true, hs[119]: true}
	sw, err := s.Sweep(func(h Hash) bool { return live[h] }, time.Hour, time.Now())
	require.NoError(t, err)
	require.Equal(t, 116, sw.Removed)
	require.Equal(t, 5, sw.Kept)
	require.Equal(t, 2, sw.Packs)
	check := func(s *Store) {
		for i, h := range hs {
			_, err := s.Get(h)
			if live[h] || i == 1 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrMissing)
			}
		}
		_, err := s.Get(y)
		require.NoError(t, err)
	}
	check(s)
	again, err := Open(dir)
	require.NoError(t, err)
	defer again.Close()
	check(again)
	age(s, 2*time.Hour)
	_, err = s.Sweep(func(Hash) bool { return false }, time.Hour, time.Now())
	require.NoError(t, err)
	require.Zero(t, s.Len())
	left, err := os.ReadDir(filepath.Join(dir, packsDir))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestABatchThatReliedOnWhatWasSweptFails(t *testing.T) {
	s := open(t)
	first := s.Batch()
	_, err := first.Put([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, first.Commit())
	slow := s.Batch()
	_, err = slow.Put([]byte("x"))
	require.NoError(t, err)
	age(s, 2*time.Hour)
	_, err = s.Sweep(func(Hash) bool { return false }, time.Hour, time.Now())
	require.NoError(t, err)
	require.ErrorIs(t, slow.Commit(), ErrMissing)
}

func TestReadersDoNotNoticeASweep(t *testing.T) {
	s := open(t)
	var hs []Hash
	for i := range 50 {
		b := s.Batch()
		h, err := b.Put(noise(uint64(i), 5000))
		require.NoError(t, err)
		hs = append(hs, h)
		require.NoError(t, b.Commit())
	}
	stop, done := make(chan struct{}), make(chan error)
	for range 4 {
		go func() {
			for {
				for _, h := range hs {
					if _, err := s.Get(h); err != nil {
						done <- err
						return
					}
				}
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
			}
		}()
	}
	for range 20 {
		age(s, 2*time.Hour)
		b := s.Batch()
		_, err := b.Put(fmt.Append(nil, time.Now()))
		require.NoError(t, err)
		require.NoError(t, b.Commit())
		_, err = s.Sweep(func(Hash) bool { return true }, time.Hour, time.Now())
		require.NoError(t, err)
	}
	close(stop)
	for range 4 {
		require.NoError(t, <-done)
	}
}

func FuzzTable(f *testing.F) {
	s, err := Open(f.TempDir())
	require.NoError(f, err)
	b := s.Batch()
	_, err = b.Put([]byte("content"))
	require.NoError(f, err)
	require.NoError(f, b.Commit())
	raw, err := s.root.ReadFile(packName(1))
	require.NoError(f, err)
	require.NoError(f, s.Close())
	f.Add(raw)
	f.Add(raw[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := readTable(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, e := range entries {
			require.LessOrEqual(t, e.offset+int64(e.size), int64(len(b)))
		}
	})
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
