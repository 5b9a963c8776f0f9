package turns

import (
	"sync"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Key names a task.
type Key struct{ Tenant, Workspace, ID string }

// Item is what admission must know of a task that has not ended.
type Item struct {
	Key
	Agent     string // empty for a template with a command
	Priority  workspace.Priority
	Since     time.Time // when it was accepted: the order within a priority
	NotBefore time.Time // zero is now
	State     workspace.State
	Node      string // that runs it
	Pin       string // the only node that may run it; empty for any
}

// Node is what admission must know of a node.
type Node struct {
	Ready bool
	Apart bool // of another pool: it runs only what is pinned to it
	Slots int
	Held  int // slots taken by what is no task: interactive sandboxes
}

// Grant is a task that may go on now.
type Grant struct {
	Key
	Pin string
}

// Limits bound what is on its way; 0 is no bound.
type Limits struct {
	Weight     int
	MaxRunning int
}

type group struct{ workspace, agent, pin string }

type entry struct {
	Item
	reserved bool // given out by Next, not yet seen in the log
	heap     *byAge
	at       int // index in its heap
}

type tenant struct {
	limits   Limits
	waiting  map[workspace.Priority]map[group]*byAge
	pending  int
	underway int
	pass     float64
	spaces   map[string]*count
	agents   map[[2]string]*count // by workspace and agent
}

type count struct{ limit, pending, underway int }

// Index holds every task that has not ended. It is safe for concurrent use.
type Index struct {
	mu      sync.Mutex
	entries map[Key]*entry
	tenants map[string]*tenant
	nodes   map[string]Node
	onNode  map[string]int // running, by node
	pinned  map[string]int // reserved or queued for one node
	queued  int            // reserved or queued
	later   byTime         // waiting for their NotBefore
	margin  int
	pass    float64 // of the last turn
}

// New makes an empty index. margin is how many may wait in the queue beyond the slots there are.
func New(margin int) *Index {
	return &Index{entries: map[Key]*entry{}, tenants: map[string]*tenant{}, nodes: map[string]Node{},
		onNode: map[string]int{}, pinned: map[string]int{}, margin: margin}
}

func (x *Index) tenant(name string) *tenant {
	t := x.tenants[name]
	if t == nil {
		t = &tenant{waiting: map[workspace.Priority]map[group]*byAge{}, spaces: map[string]*count{}, agents: map[[2]string]*count{}}
		x.tenants[name] = t
	}
	return t
}

func (t *tenant) space(name string) *count { return counter(t.spaces, name) }

func (t *tenant) agent(ws, name string) *count { return counter(t.agents, [2]string{ws, name}) }

func counter[K comparable](m map[K]*count, k K) *count {
	c := m[k]
	if c == nil {
		c = &count{}
		m[k] = c
	}
	return c
}

// SetTenant sets a tenant's weight and limit.
func (x *Index) SetTenant(name string, l Limits) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tenant(name).limits = l
}

// SetWorkspace sets a workspace's limit.
func (x *Index) SetWorkspace(tenant, ws string, maxRunning int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tenant(tenant).space(ws).limit = maxRunning
}

// SetAgent sets an agent's limit.
func (x *Index) SetAgent(tenant, ws, agent string, maxRunning int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tenant(tenant).agent(ws, agent).limit = maxRunning
}

// SetNode sets what a node has.
func (x *Index) SetNode(name string, n Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.nodes[name] = n
}

// RemoveTenant forgets a tenant and all its tasks.
func (x *Index) RemoveTenant(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for k, e := range x.entries {
		if k.Tenant == name {
			x.take(e)
			delete(x.entries, k)
		}
	}
	delete(x.tenants, name)
}

// Put notes what the log says of a task. A final state removes it.
func (x *Index) Put(it Item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[it.Key]; e != nil {
		x.take(e)
		delete(x.entries, it.Key)
	}
	if it.State.Final() {
		return
	}
	if it.Priority == "" {
		it.Priority = workspace.Normal
	}
	e := &entry{Item: it}
	x.entries[it.Key] = e
	x.place(e)
}

// Remove forgets a task, as when its record was purged.
func (x *Index) Remove(k Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[k]; e != nil {
		x.take(e)
		delete(x.entries, k)
	}
}

// Release gives back what Next gave out and could not be admitted; it waits until notBefore.
func (x *Index) Release(k Key, notBefore time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[k]; e != nil && e.reserved {
		x.take(e)
		e.reserved, e.NotBefore = false, notBefore
		x.place(e)
	}
}

// Pending is how many tasks of a tenant, and of one workspace of it, wait.
func (x *Index) Pending(tenantName, ws string) (inTenant, inWorkspace int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tenants[tenantName]
	if t == nil {
		return 0, 0
	}
	if s := t.spaces[ws]; s != nil {
		inWorkspace = s.pending
	}
	return t.pending, inWorkspace
}

// place adds e to where its state puts it and counts it; take is its inverse.
func (x *Index) place(e *entry) {
	t := x.tenant(e.Tenant)
	s, a := t.space(e.Workspace), t.agent(e.Workspace, e.Agent)
	if e.State == workspace.Pending && !e.reserved {
		t.pending, s.pending = t.pending+1, s.pending+1
		x.wait(t, e)
		return
	}
	t.underway, s.underway, a.underway = t.underway+1, s.underway+1, a.underway+1
	switch {
	case e.State == workspace.Running:
		x.onNode[e.Node]++
	default:
		x.queued++
		if e.Pin != "" {
			x.pinned[e.Pin]++
		}
	}
}

func (x *Index) take(e *entry) {
	t := x.tenant(e.Tenant)
	s, a := t.space(e.Workspace), t.agent(e.Workspace, e.Agent)
	if e.State == workspace.Pending && !e.reserved {
		t.pending, s.pending = t.pending-1, s.pending-1
		x.unwait(e)
		return
	}
	t.underway, s.underway, a.underway = t.underway-1, s.underway-1, a.underway-1
	switch {
	case e.State == workspace.Running:
		dec(x.onNode, e.Node)
	default:
		x.queued--
		if e.Pin != "" {
			dec(x.pinned, e.Pin)
		}
	}
}

func dec(m map[string]int, k string) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}
