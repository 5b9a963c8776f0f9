package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// counting counts how often a chunk is read.
type counting struct {
	Source
	reads map[chunks.Hash]int
}

func (c *counting) Get(h chunks.Hash) ([]byte, error) {
	c.reads[h]++
	return c.Source.Get(h)
}

// TestPagesOfALargeDirectory: a list that goes on where the last page ended looks at nothing before that, and a
// directory that is too large for what a Tree keeps is read once for all pages.
func TestPagesOfALargeDirectory(t *testing.T) {
	const many, page = cacheEntries + 10, 5000
	s, _ := open(t)
	src := &counting{s, map[chunks.Hash]int{}}
	tr := NewTree(src)
	b := s.Batch()
	var roots, larges [2]chunks.Hash
	for side := range roots {
		n := &Node{}
		for i := range many {
			n.Entries = append(n.Entries, Entry{Name: fmt.Sprintf("%06d", i), Type: Symlink, Mode: 0o777, Target: fmt.Sprint(side)})
		}
		var err error
		larges[side], err = Save(b, n)
		require.NoError(t, err)
		roots[side], err = Save(b, &Node{Entries: []Entry{{Name: "a", Type: Dir, Mode: 0o755, Hash: Empty}, {Name: "large", Type: Dir, Mode: 0o755, Files: many, Hash: larges[side]}, {Name: "z", Type: Symlink, Mode: 0o777, Target: "x"}}})
		require.NoError(t, err)
	}
	require.NoError(t, b.Commit())

	full := errors.New("the page is full")
	pages := func(next func(from string, fn func(path string) error) error) (all []string, looks int) {
		for {
			n, from := 0, ""
			if len(all) > 0 {
				from = all[len(all)-1]
			}
			err := next(from, func(path string) error {
				looks++
				if path == from || strings.HasPrefix(from, path+"/") {
					return nil
				}
				all = append(all, path)
				if n++; n == page {
					return full
				}
				return nil
			})
			if err == nil {
				return all, looks
			}
			require.ErrorIs(t, err, full)
		}
	}
	listed, looks := pages(func(from string, fn func(string) error) error {
		return tr.WalkFrom(roots[0], from, func(path string, _ Entry) error { return fn(path) })
	})
	require.Len(t, listed, many+3)
	require.True(t, slices.IsSorted(listed))
	require.Less(t, looks, many+3*(many/page+2))
	require.Equal(t, 1, src.reads[larges[0]])

	differ, looks := pages(func(from string, fn func(string) error) error {
		return tr.DiffFrom(roots[0], roots[1], from, func(c Change) error { return fn(c.Path) })
	})
	require.Equal(t, listed[2:len(listed)-1], differ)
	require.Less(t, looks, many+3*(many/page+2))
	require.Equal(t, []int{1, 1}, []int{src.reads[larges[0]], src.reads[larges[1]]})

	require.Len(t, tr.large, largeNodes)
	tr.mu.Lock()
	for _, l := range tr.large {
		l.gone.Reset(0)
	}
	tr.mu.Unlock()
	require.Eventually(t, func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.large) == 0
	}, 30*time.Second, time.Millisecond, "what nobody asks for is let go of")
}
