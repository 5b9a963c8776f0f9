package weftinit

import (
	"container/heap"
	"slices"

	"golang.org/x/sys/unix"
)

// nameCost is what a name takes of memory beside its bytes.
const nameCost = 16

// largest is a heap with the largest name on top.
type largest []string

func (h largest) Len() int           { return len(h) }
func (h largest) Less(i, j int) bool { return h[i] > h[j] }
func (h largest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *largest) Push(x any)        { *h = append(*h, x.(string)) }
func (h *largest) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = ""
	*h = (*h)[:last]
	return x
}

// smallestNames gives those names of a directory that come first after the name after, in their order: as many as
// fit into room bytes, and at least one. more says that there are others behind them. However large the
// directory is, it costs no more memory than that.
func smallestNames(fd int, after string, room int) (names []string, more bool, err error) {
	var h largest
	used := 0
	err = eachName(fd, func(name string) bool {
		if name <= after || more && len(h) > 0 && name > h[0] {
			return true
		}
		heap.Push(&h, name)
		used += len(name) + nameCost
		for used > room && len(h) > 1 {
			used -= len(heap.Pop(&h).(string)) + nameCost
			more = true
		}
		return true
	})
	slices.Sort(h)
	return h, more, err
}

// anyNames gives names of a directory as they come, as many as fit into room bytes.
func anyNames(fd int, room int) (names []string, more bool, err error) {
	used := 0
	err = eachName(fd, func(name string) bool {
		if used > room {
			more = true
			return false
		}
		names = append(names, name)
		used += len(name) + nameCost
		return true
	})
	return names, more, err
}

// eachName reads a directory from its beginning until f says no.
func eachName(fd int, f func(string) bool) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, *b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		_, _, names = unix.ParseDirent((*b)[:n], -1, names[:0])
		for _, name := range names {
			if !f(name) {
				return nil
			}
		}
	}
}
