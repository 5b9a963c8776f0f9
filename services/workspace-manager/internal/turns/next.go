package turns

import (
	"container/heap"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

var priorities = []workspace.Priority{workspace.High, workspace.Normal, workspace.Low}

// Next gives the task whose turn it is and reserves it; ok is false while there is no room, or nothing
// may go on. The zero Priority counts as normal, an unknown one as low.
func (x *Index) Next(now time.Time) (g Grant, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wake(now)
	room, apart := x.room()
	if room <= 0 && !apart {
		return Grant{}, false
	}
	var best *entry
	var of *tenant
	for _, t := range x.tenants {
		if t.pending == 0 || (of != nil && !t.before(of)) || atLimit(t.limits.MaxRunning, t.underway) {
			continue
		}
		if e := x.head(t, room > 0); e != nil {
			best, of = e, t
		}
	}
	if best == nil {
		return Grant{}, false
	}
	// A tenant that was idle starts where the others are; it has saved nothing up.
	of.pass = max(of.pass, x.pass) + 1/float64(max(of.limits.Weight, 1))
	x.pass = of.pass - 1/float64(max(of.limits.Weight, 1))
	x.take(best)
	best.reserved = true
	x.place(best)
	return Grant{Key: best.Key, Pin: best.Pin}, true
}

// Due is when the next task that waits for its time may go on; zero if none waits.
func (x *Index) Due() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.later.es) == 0 {
		return time.Time{}
	}
	return x.later.es[0].NotBefore
}

// before reports whether t's turn comes before o's.
func (t *tenant) before(o *tenant) bool {
	a := float64(t.underway) / float64(max(t.limits.Weight, 1))
	b := float64(o.underway) / float64(max(o.limits.Weight, 1))
	if a != b {
		return a < b
	}
	return t.pass < o.pass
}

// room is how many more may be on their way to the nodes of the pool; apart says that there are others.
func (x *Index) room() (room int, apart bool) {
	slots, used := 0, x.queued
	for name, n := range x.nodes {
		switch {
		case n.Apart:
			used -= x.pinned[name] // those wait elsewhere
			apart = apart || n.Ready
		case n.Ready:
			slots += n.Slots
			used += x.onNode[name] + n.Held
		}
	}
	if slots == 0 {
		return 0, apart
	}
	return slots + x.margin - used, apart
}

// roomOn is the same for one node.
func (x *Index) roomOn(node string) int {
	n := x.nodes[node]
	if !n.Ready || n.Slots == 0 {
		return 0
	}
	return n.Slots + x.margin - x.onNode[node] - n.Held - x.pinned[node]
}

// head is the first task of t that no limit holds back; pool says that the pool has room.
func (x *Index) head(t *tenant, pool bool) *entry {
	for _, p := range priorities {
		var best *entry
		for g, h := range t.waiting[p] {
			e := h.es[0]
			if best != nil && !older(e, best) {
				continue
			}
			if !pool && !x.nodes[g.pin].Apart {
				continue
			}
			s, a := t.space(g.workspace), t.agent(g.workspace, g.agent)
			if atLimit(s.limit, s.underway) || (g.agent != "" && atLimit(a.limit, a.underway)) || (g.pin != "" && x.roomOn(g.pin) <= 0) {
				continue
			}
			best = e
		}
		if best != nil {
			return best
		}
	}
	return nil
}

func atLimit(limit, n int) bool { return limit > 0 && n >= limit }

// wait puts a pending entry in line, or aside until its time has come.
func (x *Index) wait(t *tenant, e *entry) {
	if !e.NotBefore.IsZero() {
		heap.Push(&x.later, e)
		return
	}
	p := e.Priority
	if p != workspace.High && p != workspace.Normal {
		p = workspace.Low
	}
	m := t.waiting[p]
	if m == nil {
		m = map[group]*byAge{}
		t.waiting[p] = m
	}
	g := group{e.Workspace, e.Agent, e.Pin}
	if m[g] == nil {
		m[g] = &byAge{of: m, key: g}
	}
	e.heap = m[g]
	heap.Push(m[g], e)
}

func (x *Index) unwait(e *entry) {
	if e.heap == nil {
		heap.Remove(&x.later, e.at)
		return
	}
	h := e.heap
	heap.Remove(h, e.at)
	if e.heap = nil; len(h.es) == 0 {
		delete(h.of, h.key)
	}
}

// wake puts in line whose time has come.
func (x *Index) wake(now time.Time) {
	for len(x.later.es) > 0 && !x.later.es[0].NotBefore.After(now) {
		e := heap.Pop(&x.later).(*entry)
		e.NotBefore = time.Time{}
		x.wait(x.tenant(e.Tenant), e)
	}
}

func older(a, b *entry) bool {
	if !a.Since.Equal(b.Since) {
		return a.Since.Before(b.Since)
	}
	return a.ID < b.ID
}

// byAge is a line of tasks of one tenant, priority, workspace, agent and pin, oldest first.
type byAge struct {
	es  []*entry
	of  map[group]*byAge
	key group
}

func (h *byAge) Len() int           { return len(h.es) }
func (h *byAge) Less(i, j int) bool { return older(h.es[i], h.es[j]) }
func (h *byAge) Swap(i, j int)      { swap(h.es, i, j) }
func (h *byAge) Push(v any)         { h.es = push(h.es, v) }
func (h *byAge) Pop() any           { var e *entry; h.es, e = pop(h.es); return e }

// byTime holds tasks that wait for their time, the next one first.
type byTime struct{ es []*entry }

func (h *byTime) Len() int           { return len(h.es) }
func (h *byTime) Less(i, j int) bool { return h.es[i].NotBefore.Before(h.es[j].NotBefore) }
func (h *byTime) Swap(i, j int)      { swap(h.es, i, j) }
func (h *byTime) Push(v any)         { h.es = push(h.es, v) }
func (h *byTime) Pop() any           { var e *entry; h.es, e = pop(h.es); return e }

func swap(es []*entry, i, j int) {
	es[i], es[j] = es[j], es[i]
	es[i].at, es[j].at = i, j
}

func push(es []*entry, v any) []*entry {
	e := v.(*entry)
	e.at = len(es)
	return append(es, e)
}

func pop(es []*entry) ([]*entry, *entry) {
	e := es[len(es)-1]
	es[len(es)-1] = nil
	return es[:len(es)-1], e
}
