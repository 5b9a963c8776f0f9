package weftinit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onePage walks as a page of a list does, and gives so many names after one.
func onePage(t *testing.T, dir, after string, most int) (out []string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	w, err := walkFrom(fd, walker{sorted: true, depth: 1, resume: elements(after), few: most + 1, keep: true})
	require.NoError(t, err)
	defer w.close()
	for range most {
		e, err := w.next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		out = append(out, e.name)
	}
	_, _ = w.next() // whether there is another
	return out
}

// counted says how often f reads a directory from its beginning.
func counted(f func()) int {
	before := shelf.read
	f()
	return shelf.read - before
}

// TestPagesOfALargeDirectory: however many pages a list has, its directory is read once for each 4 MiB of names.
func TestPagesOfALargeDirectory(t *testing.T) {
	const many, page = 18_000, 500
	dir := t.TempDir()
	var want []string
	for i := range many {
		want = append(want, fmt.Sprintf("%06d-%s", i, strings.Repeat("x", 240))) // 4.7 MB of names, with what they cost
		require.NoError(t, os.WriteFile(filepath.Join(dir, want[i]), nil, 0o600))
	}
	state := func() (s dirState) {
		f, err := os.Open(dir)
		require.NoError(t, err)
		defer f.Close()
		return stateOf(int(f.Fd()))
	}
	calm := func() {
		require.Eventually(t, func() bool { return state().settled }, 30*time.Second, 10*time.Millisecond)
	}
	calm()
	before := shelf.used
	var got []string
	reads := counted(func() {
		for last := ""; ; last = got[len(got)-1] {
			p := onePage(t, dir, last, page)
			if got = append(got, p...); len(p) < page {
				return
			}
			require.LessOrEqual(t, shelf.used, namesRoom)
		}
	})
	require.Equal(t, want, got)
	require.LessOrEqual(t, reads, 5, "for %d pages", many/page)
	require.Equal(t, before, shelf.used, "nothing is left on the shelf after the last page")

	t.Run("what changes is read again", func(t *testing.T) {
		onePage(t, dir, want[0], page)
		require.NotEmpty(t, shelf.kept)
		more := want[page] + "+"
		require.NoError(t, os.WriteFile(filepath.Join(dir, more), nil, 0o600))
		require.Contains(t, onePage(t, dir, want[page], page), more)
		require.NoError(t, os.Remove(filepath.Join(dir, more)))
		require.Empty(t, shelf.kept, "it has only just changed")
		calm()
		require.Equal(t, want[page+1:2*page+1], onePage(t, dir, want[page], page))
		require.Len(t, shelf.kept, 1)
	})

	t.Run("those who need the room get it", func(t *testing.T) {
		require.Len(t, shelf.kept, 1)
		var held []int
		for range 3 {
			held = append(held, shelf.take(namesRoom, 0))
		}
		require.Empty(t, shelf.kept)
		for _, n := range held {
			require.GreaterOrEqual(t, n, namesShare)
			shelf.give(n)
		}
		require.Equal(t, before, shelf.used)
	})

	t.Run("a list that nobody goes on with is forgotten", func(t *testing.T) {
		onePage(t, dir, want[0], page)
		require.Len(t, shelf.kept, 1)
		shelf.kept[0].until.Reset(0)
		require.Eventually(t, func() bool {
			shelf.mu.Lock()
			defer shelf.mu.Unlock()
			return len(shelf.kept) == 0 && shelf.used == before
		}, 30*time.Second, time.Millisecond)
	})

	t.Run("one reader of a whole directory reads it as seldom", func(t *testing.T) {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		w, err := walkFrom(fd, walker{sorted: true})
		require.NoError(t, err)
		defer w.close()
		var got []string
		reads := counted(func() {
			for {
				e, err := w.next()
				if err != nil {
					require.Equal(t, io.EOF, err)
					return
				}
				got = append(got, e.name)
			}
		})
		require.True(t, slices.Equal(want, got))
		require.LessOrEqual(t, reads, 3)
	})
}
