package weftinit

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
	err = eachName(fd, func(name []byte) bool {
		if string(name) <= after || more && len(h) > 0 && string(name) > h[0] {
			return true
		}
		heap.Push(&h, string(name))
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
	err = eachName(fd, func(name []byte) bool {
		if used > room {
			more = true
			return false
		}
		names = append(names, string(name))
		used += len(name) + nameCost
		return true
	})
	return names, more, err
}

// eachName reads a directory from its beginning until f says no. What f gets is good until it returns.
func eachName(fd int, f func([]byte) bool) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for {
		n, err := unix.ReadDirent(fd, *b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for rest := (*b)[:n]; len(rest) > direntName; {
			size := int(binary.NativeEndian.Uint16(rest[direntSize:]))
			if size <= direntName || size > len(rest) {
				return unix.EIO
			}
			name, _, _ := bytes.Cut(rest[direntName:size], []byte{0})
			rest = rest[size:]
			switch string(name) {
			case "", ".", "..":
				continue
			}
			if !f(name) {
				return nil
			}
		}
	}
}

// Where the kernel puts the length of an entry and its name.
const (
	direntSize = unsafe.Offsetof(unix.Dirent{}.Reclen)
	direntName = int(unsafe.Offsetof(unix.Dirent{}.Name))
)
