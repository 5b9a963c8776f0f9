package weftinit

import (
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What all walks together keep of names, in bytes.
const (
	namesRoom  = 8 << 20   // the half of what is free goes to the next reading
	namesShare = 512 << 10 // of one walk in any case
	namesLeast = 32 << 10  // of one directory in any case
	nameCost   = 16        // of a name beside its own bytes
)

const (
	keptFor = 10 * time.Second       // names wait for the next page of their list
	settled = 100 * time.Millisecond // after its last change, another change of a directory shows in its times
)

// names are some of a directory, in order and without a gap.
type names struct {
	dir   dirState // when they were read
	after string   // the name before the first; empty for the first of all
	list  []string
	more  bool // the directory has others behind them
	room  int  // what they take of the shelf
}

// dirState tells one directory from another, and from itself after a change.
type dirState struct {
	dev, ino       uint64
	mtime, ctime   unix.Timespec
	known, settled bool
}

func stateOf(fd int) dirState {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return dirState{}
	}
	return dirState{st.Dev, st.Ino, st.Mtim, st.Ctim, true, time.Since(timeOf(st.Ctim)) > settled}
}

// worth says whether the next page would have to read much again for want of those from at on. Nil is worth nothing.
func (n *names) worth(at int) bool {
	return n != nil && at < len(n.list) && n.dir.known && n.dir.settled && (n.more || n.after != "")
}

// nameShelf bounds the names in memory. Those of large directories lie on it between two pages of a list, so that
// a directory is not read from its beginning for each page; they are gone when it changes, when somebody
// else wants the room, and after keptFor.
type nameShelf struct {
	mu   sync.Mutex
	used int
	kept []*lying // the longest there first
	read int      // how often a directory was read from its beginning
}

type lying struct {
	*names
	until *time.Timer
}

var shelf nameShelf

// take reserves room for one reading, for a walk that holds so much already: at most most, or a little.
func (s *nameShelf) take(most, held int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.kept) > 0 && (namesRoom-s.used)/2 < min(most, namesRoom/4) {
		s.drop(s.kept[0])
	}
	least := namesLeast
	if held < namesShare {
		least = namesShare
	}
	n := min(max((namesRoom-s.used)/2, least), most)
	s.used += n
	s.read++
	return n
}

// settle gives back what names that were read do not need.
func (s *nameShelf) settle(n *names) {
	cost := 0
	for _, name := range n.list {
		cost += len(name) + nameCost
	}
	s.give(n.room - cost)
	n.room = cost
}

func (s *nameShelf) give(room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= room
}

// keep takes names over from a walk.
func (s *nameShelf) keep(n *names) {
	k := &lying{names: n}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, k)
	k.until = time.AfterFunc(keptFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(k)
	})
}

// drop is called with mu held.
func (s *nameShelf) drop(k *lying) {
	if i := slices.Index(s.kept, k); i >= 0 {
		s.kept = slices.Delete(s.kept, i, i+1)
		k.until.Stop()
		s.used -= k.room
	}
}

// find gives a walk those names of a directory, as it is now, that have what comes next after a name, and where that is.
func (s *nameShelf) find(dir dirState, after string) (*names, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		last := len(k.list) - 1
		if k.dir.dev != dir.dev || k.dir.ino != dir.ino || after < k.after || k.more && after >= k.list[last] {
			continue
		}
		room := k.room
		s.drop(k)
		if !dir.known || k.dir.mtime != dir.mtime || k.dir.ctime != dir.ctime {
			return nil, 0
		}
		s.used += room
		return k.names, sort.Search(len(k.list), func(i int) bool { return k.list[i] > after })
	}
	return nil, 0
}
