package manager

import (
	"sort"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/workspace"
)

// summary is what the manager keeps in memory of a task: enough to list, to reconcile and to count,
// and small whatever the submission's size.
type summary struct {
	records.Key
	State     workspace.State
	Agent     string
	Principal string // as whom it runs
	Group     string
	Labels    map[string]string
	Created   time.Time
	Finished  time.Time
	Attempt   int
	Node      string
	Sandbox   string
	Priority  workspace.Priority
	Depth     int
	Limit     time.Duration // of one attempt's run
	Image     string        // if a snapshot made it
	Sequence  uint64
	Seen      time.Time // when this replica saw the present state, by its own clock
}

func summarize(r records.Record[workspace.Task], seen time.Time) *summary {
	t := &r.Value
	s := &summary{Key: r.Key, State: t.State, Agent: t.Submission.Agent, Labels: t.Submission.Labels, Created: t.CreatedAt,
		Attempt: t.Attempt.Number, Node: t.Attempt.Node, Sandbox: t.Attempt.Sandbox, Priority: t.Submission.Priority,
		Depth: t.Depth, Sequence: r.Sequence, Seen: seen}
	if t.Run != nil {
		s.Principal, s.Limit = t.Run.Principal, time.Duration(t.Run.TimeoutMS)*time.Millisecond
		if pinOf(t.Run.Image, "") != "" {
			s.Image = t.Run.Image
		}
	}
	if t.Submission.Group != nil {
		s.Group = t.Submission.Group.ID
	}
	if t.FinishedAt != nil {
		s.Finished = *t.FinishedAt
	}
	return s
}

// taskList holds the summaries of a tenant's tasks.
type taskList struct {
	mu   sync.RWMutex
	byID map[records.Key]*summary
	live map[records.Key]*summary // those that have not ended
	// running has those that run, by workspace and the principal as whom they run.
	running map[[2]string]map[records.Key]*summary
	// order has each workspace's tasks by creation. What was forgotten stays in it until it is compacted.
	order map[string][]*summary
	gone  map[string]int
}

func newTaskList() *taskList {
	return &taskList{byID: map[records.Key]*summary{}, live: map[records.Key]*summary{},
		running: map[[2]string]map[records.Key]*summary{}, order: map[string][]*summary{}, gone: map[string]int{}}
}

// put notes a state; an older one than is there changes nothing. It reports whether it was noted.
func (l *taskList) put(s *summary) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.byID[s.Key]
	switch {
	case old != nil && old.Sequence >= s.Sequence:
		return false
	case old != nil:
		if old.State == s.State && old.Attempt == s.Attempt {
			s.Seen = old.Seen
		}
		l.unindex(old)
		*old = *s
		s = old
	default:
		l.byID[s.Key] = s
		l.insert(s)
	}
	if !s.State.Final() {
		l.live[s.Key] = s
	}
	if s.State == workspace.Running {
		k := [2]string{s.Workspace, s.Principal}
		if l.running[k] == nil {
			l.running[k] = map[records.Key]*summary{}
		}
		l.running[k][s.Key] = s
	}
	return true
}

func (l *taskList) unindex(s *summary) {
	delete(l.live, s.Key)
	k := [2]string{s.Workspace, s.Principal}
	if delete(l.running[k], s.Key); len(l.running[k]) == 0 {
		delete(l.running, k)
	}
}

// insert keeps a workspace's order; nearly always the new one is the last.
func (l *taskList) insert(s *summary) {
	o := l.order[s.Workspace]
	i := len(o)
	if i > 0 && before(s, o[i-1]) {
		i = sort.Search(len(o), func(i int) bool { return before(s, o[i]) })
	}
	o = append(o, nil)
	copy(o[i+1:], o[i:])
	o[i] = s
	l.order[s.Workspace] = o
}

func before(a, b *summary) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.ID < b.ID
}

func (l *taskList) forget(k records.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byID[k]
	if s == nil {
		return
	}
	l.unindex(s)
	delete(l.byID, k)
	l.gone[k.Workspace]++
	if o := l.order[k.Workspace]; l.gone[k.Workspace]*2 > len(o) {
		kept := make([]*summary, 0, len(o)-l.gone[k.Workspace])
		for _, s := range o {
			if l.byID[s.Key] == s {
				kept = append(kept, s)
			}
		}
		l.order[k.Workspace], l.gone[k.Workspace] = kept, 0
	}
}

func (l *taskList) get(k records.Key) (summary, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s := l.byID[k]; s != nil {
		return *s, true
	}
	return summary{}, false
}

// unfinished gives a copy of every task that has not ended.
func (l *taskList) unfinished() []summary {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]summary, 0, len(l.live))
	for _, s := range l.live {
		out = append(out, *s)
	}
	return out
}

// ended gives up to max tasks that ended before t, and all of workspace ws if it is not "*".
func (l *taskList) ended(ws string, t time.Time, max int) []records.Key {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []records.Key
	for k, s := range l.byID {
		if len(out) >= max {
			break
		}
		if s.State.Final() && s.Finished.Before(t) && (ws == "*" || ws == k.Workspace) {
			out = append(out, k)
		}
	}
	return out
}

// depth is the depth of triggers at which principal acts: that of the task it names, if that is one of
// its own that runs, else the deepest of its own. A sender can't lower it.
func (l *taskList) depth(ws, principal, task string) int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	deepest := 0
	for k, s := range l.running[[2]string{ws, principal}] {
		if k.ID == task {
			return s.Depth
		}
		deepest = max(deepest, s.Depth)
	}
	return deepest
}

// page walks a workspace's tasks from the newest, beginning after cursor, until each says stop.
func (l *taskList) page(ws, cursor string, each func(summary) (more bool)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	o := l.order[ws]
	i := len(o)
	if t, id, ok := readCursor(cursor); ok {
		at := &summary{Key: records.Key{ID: id}, Created: t}
		i = sort.Search(len(o), func(i int) bool { return !before(o[i], at) })
	}
	for i--; i >= 0; i-- {
		if l.byID[o[i].Key] != o[i] {
			continue
		}
		if !each(*o[i]) {
			return
		}
	}
}

func writeCursor(t time.Time, id string) string { return t.UTC().Format(time.RFC3339Nano) + "_" + id }

func readCursor(c string) (time.Time, string, bool) {
	for i := range len(c) {
		if c[i] == '_' {
			t, err := time.Parse(time.RFC3339Nano, c[:i])
			return t, c[i+1:], err == nil
		}
	}
	return time.Time{}, "", false
}

// runs reports whether a task runs as principal.
func (l *taskList) runs(ws, principal string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.running[[2]string{ws, principal}]) > 0
}

// in gives the keys of all tasks of a workspace.
func (l *taskList) in(ws string) []records.Key {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []records.Key
	for k := range l.byID {
		if k.Workspace == ws {
			out = append(out, k)
		}
	}
	return out
}
