package weftinit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Directories that are moved into each other, back and forth, while a walk goes over them: no place comes below itself, where
// nobody would find the way up any more, and the tree is looked at anew.
func TestAPlaceNeverComesBelowItself(t *testing.T) {
	w, err := newWatched(true)
	require.NoError(t, err)
	defer w.f.Close()
	top := &place{wd: 1}
	a := &place{wd: 2, up: top, name: "a"}
	b := &place{wd: 3, up: a, name: "b"}
	for _, p := range []*place{top, a, b} {
		w.hook(p)
		w.by[p.wd] = p
	}
	var fresh []*place
	const dir = unix.IN_ISDIR
	w.event(top, unix.InotifyEvent{Wd: 1, Mask: unix.IN_MOVED_FROM | dir, Cookie: 7}, "a", &fresh)
	w.event(b, unix.InotifyEvent{Wd: 3, Mask: unix.IN_MOVED_TO | dir, Cookie: 7}, "a", &fresh)
	steps := 0
	for p := b; p != nil; p = p.up {
		steps++
		require.Less(t, steps, 4)
	}
	require.True(t, w.out.lost)
	require.True(t, w.rehook(b, top, "c"), "what makes sense is done")
	require.Equal(t, "c", b.path())
}
