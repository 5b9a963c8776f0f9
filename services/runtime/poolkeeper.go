package runtime

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// poolkeeper keeps the warm pools that the manager wants: it makes members, hands them over and replaces them.
// Members take no slots, and survive the node's process as running sandboxes do.
type poolkeeper struct {
	s     *Service
	awake chan struct{}

	mu      sync.Mutex
	pools   map[workspace.PoolRef]*pool
	answers int       // of the manager, which say what it wants
	waiting []*member // found at the start, and of no pool that the manager has named yet
	doomed  []*member // to be destroyed
	making  int
	ending  int // members being destroyed
	cold    int
	last    time.Time // when the last member was begun
	claims  claims
}

func newPoolkeeper(s *Service) *poolkeeper {
	return &poolkeeper{s: s, awake: make(chan struct{}, 1), pools: map[workspace.PoolRef]*pool{}}
}

// wake has the keeper look soon.
func (k *poolkeeper) wake() {
	select {
	case k.awake <- struct{}{}:
	default:
	}
}

// adopt takes up the members that an earlier process made.
func (k *poolkeeper) adopt(boxes []*sandbox.Sandbox) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range boxes {
		k.waiting = append(k.waiting, newMember(b, k.s.cfg.Clock().Add(-b.Uptime())))
	}
	slices.SortFunc(k.waiting, func(a, b *member) int { return a.made.Compare(b.made) })
}

// forgetAfter so many answers without it a pool is not wanted any more: a manager that is just starting may not know all.
const forgetAfter = 3

// want takes the manager's word on which pools there are to be. A pool that is no longer among them is emptied.
func (k *poolkeeper) want(wanted []workspace.WantedPool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers++
	for _, p := range k.pools {
		p.absent++
	}
	for _, w := range wanted {
		p := k.pools[w.PoolRef]
		if p == nil {
			p = &pool{}
			k.pools[w.PoolRef] = p
		}
		mold := moldOf(w)
		if !mold.Same(p.mold) {
			p.fingerprint, p.retryAt, p.pause, p.fault = "", time.Time{}, 0, nil
		}
		p.want, p.mold, p.absent = w, mold, 0
	}
	for ref, p := range k.pools {
		if p.absent >= forgetAfter {
			k.doomed = append(k.doomed, p.members...)
			delete(k.pools, ref)
		}
	}
	k.waiting = slices.DeleteFunc(k.waiting, func(m *member) bool {
		mold, _, _ := m.box.Blank()
		if k.pools[mold.Pool] == nil && k.answers < forgetAfter {
			return false
		}
		k.put(mold.Pool, m)
		return true
	})
	k.wake()
}

func newMember(box *sandbox.Sandbox, made time.Time) *member {
	mold, fingerprint, _ := box.Blank()
	return &member{box: box, made: made, fingerprint: fingerprint, shape: mold.Shape()}
}

// put adds a member to its pool, if that is still wanted. The lock is held.
func (k *poolkeeper) put(ref workspace.PoolRef, m *member) {
	if p := k.pools[ref]; p != nil {
		p.members = append(p.members, m)
	} else {
		k.doomed = append(k.doomed, m)
	}
}

// moldOf is what a wanted pool's members are made from.
func moldOf(w workspace.WantedPool) sandbox.Mold {
	return sandbox.Mold{Pool: w.PoolRef, Level: w.Run.Level, Image: w.Run.Image, Isolation: w.Run.Isolation, Resources: w.Run.Resources}
}

// states is what the manager is told of the pools, sorted.
func (k *poolkeeper) states() []workspace.PoolState {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.s.cfg.Clock()
	var out []workspace.PoolState
	for _, p := range k.sorted() {
		st := workspace.PoolState{PoolRef: p.want.PoolRef, Ready: len(p.members), Making: p.making, Target: p.target(now), Claims: p.claims, Misses: p.misses, Fault: p.fault}
		if len(p.members) > 0 {
			at := p.members[0].made.UTC()
			st.Oldest = &at
		}
		out = append(out, st)
	}
	return out
}

// sorted lists the pools by their names. The lock is held.
func (k *poolkeeper) sorted() []*pool {
	return slices.SortedFunc(maps.Values(k.pools), func(a, b *pool) int {
		x, y := a.want.PoolRef, b.want.PoolRef
		return strings.Compare(x.Tenant+"/"+x.Workspace+"/"+x.Name, y.Tenant+"/"+y.Workspace+"/"+y.Name)
	})
}

// loop looks after the pools until ctx ends.
func (k *poolkeeper) loop(ctx context.Context) {
	t := time.NewTicker(k.s.cfg.timing.heartbeat)
	defer t.Stop()
	for {
		k.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-k.awake:
		case <-t.C:
		}
	}
}

// look takes out what is not wanted any more, and begins to make what is missing.
func (k *poolkeeper) look(ctx context.Context) {
	k.compare(ctx)
	closed, busy := k.closed(), overloaded()
	now := k.s.cfg.Clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pools {
		k.doomed = append(k.doomed, p.superfluous(now, (*member).dead)...)
	}
	for len(k.doomed) > 0 && k.ending < destroyAtOnce && ctx.Err() == nil {
		m := k.doomed[0]
		k.doomed = k.doomed[1:]
		k.ending++
		k.s.work.Go(func() { k.destroy(ctx, m) })
	}
	state := machineState{closed: closed, busy: busy, cold: k.cold, making: k.making, sinceLast: now.Sub(k.last), pause: 20 * k.s.cfg.timing.backoff,
		claimed: k.claims.pause(now)}
	for range state.mayBegin() {
		p := neediest(k.sorted(), now)
		if p == nil || ctx.Err() != nil {
			return
		}
		p.making++
		k.making++
		k.last, k.claims.n = now, 0
		mold := p.mold
		k.s.work.Go(func() { k.make(ctx, mold) })
	}
}

// compare finds out what members would be made of now, for the pools that have any: their image may have been replaced.
func (k *poolkeeper) compare(ctx context.Context) {
	k.mu.Lock()
	var molds []sandbox.Mold
	for _, p := range k.pools {
		if len(p.members) > 0 {
			molds = append(molds, p.mold)
		}
	}
	k.mu.Unlock()
	for _, mold := range molds {
		fingerprint, err := k.s.node.Fingerprint(ctx, mold)
		k.mu.Lock()
		if p := k.pools[mold.Pool]; p != nil && p.mold.Same(mold) && err == nil {
			p.fingerprint = fingerprint
		}
		k.mu.Unlock()
	}
}

// make makes one member.
func (k *poolkeeper) make(ctx context.Context, mold sandbox.Mold) {
	box, err := k.s.node.CreateBlank(ctx, mold)
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.wake()
	k.making--
	now := k.s.cfg.Clock()
	p := k.pools[mold.Pool]
	if p != nil {
		p.making = max(0, p.making-1)
	}
	if err == nil {
		k.put(mold.Pool, newMember(box, now))
	}
	if p == nil || ctx.Err() != nil || !p.mold.Same(mold) {
		return
	}
	if err == nil {
		p.fault, p.pause, p.retryAt = nil, 0, time.Time{}
		return
	}
	timing := k.s.cfg.timing
	p.pause = min(max(2*p.pause, 20*timing.backoff), 12*timing.maxBackoff)
	p.retryAt = now.Add(p.pause)
	p.fault, _ = wire(err)
	k.s.log.Warn("a warm sandbox can't be made", "pool", mold.Pool.Name, "tenant", mold.Pool.Tenant, "error", err, "again in", p.pause)
}

// destroy removes a member. One that somebody has claimed is left to them; what fails is tried again.
func (k *poolkeeper) destroy(ctx context.Context, m *member) {
	err := m.box.Destroy(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending--
	if err == nil || fault.Is(err, fault.Conflict) || ctx.Err() != nil {
		k.wake()
		return
	}
	k.s.log.Error("a warm sandbox can't be removed now", "sandbox", m.box.ID(), "error", err)
	k.doomed = append(k.doomed, m) // at the next look
}
