package weftinit

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// tags hands out the group ids that mark trees. A lap through all of them begins with a look at which
// ones live processes still have, so that a leftover of an old tree is never taken for a part of a new one.
type tags struct {
	mu    sync.Mutex
	on    bool
	next  int
	inUse map[uint32]bool // at the beginning of this lap
}

var errNoTag = errors.New("all tree tags are in use")

// newTags are on only in a process-id namespace of our own whose group ids cover the range, and whose
// /proc shows them: elsewhere the ids may be somebody else's.
func newTags() *tags {
	t := &tags{next: wire.TagCount}
	gidMap, err := os.ReadFile("/proc/self/gid_map")
	self, ok := readProcess(os.Getpid())
	if err != nil || os.Getpid() != 1 || !ok || !self.showsGroups {
		return t
	}
	for line := range bytes.Lines(gidMap) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		first, _ := strconv.ParseUint(string(f[0]), 10, 64)
		count, _ := strconv.ParseUint(string(f[2]), 10, 64)
		if first <= wire.TagFirst && first+count >= wire.TagFirst+wire.TagCount {
			t.on = true
		}
	}
	return t
}

// take gives a tag that no process has; 0 if there are no tags here.
func (t *tags) take() (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on {
		return 0, nil
	}
	for tried := 0; tried <= 2*wire.TagCount; tried++ {
		if t.next == wire.TagCount {
			t.next = 0
			t.lap()
		}
		tag := uint32(wire.TagFirst + t.next)
		t.next++
		if !t.inUse[tag] {
			return tag, nil
		}
	}
	return 0, errNoTag
}

func (t *tags) lap() {
	t.inUse = map[uint32]bool{}
	procs, _ := readProcesses()
	for _, p := range procs {
		for f := range bytes.FieldsSeq(p.groups) {
			if g, err := strconv.ParseUint(string(f), 10, 32); err == nil && g >= wire.TagFirst && g < wire.TagFirst+wire.TagCount {
				t.inUse[uint32(g)] = true
			}
		}
	}
}
