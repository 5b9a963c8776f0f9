package runtime

import (
	"context"
	"slices"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

var fpAfterBind = failpoint.Register("runtime.after-bind")

// claim gives a warm sandbox that is spec's now, or nil: none is to be had, and the run starts cold. Members that
// turn out not to be fit are destroyed, and the next one is tried.
func (k *poolkeeper) claim(ctx context.Context, spec sandbox.Spec) *sandbox.Sandbox {
	k.noteDemand(spec)
	for ctx.Err() == nil {
		p, m := k.take(spec)
		if m == nil {
			break
		}
		box, err := k.s.node.Bind(ctx, m.box, spec)
		failpoint.Hit(fpAfterBind)
		k.taken(p, m, err)
		if err == nil {
			return box
		}
		k.s.log.Warn("a warm sandbox was not fit to be handed over", "pool", p.want.Name, "sandbox", spec.ID, "error", err)
		if _, held := k.s.node.Get(spec.ID); held {
			break // what is left of it is in the way of every other, and Create says so
		}
	}
	k.miss(spec)
	return nil
}

// taken says how a claim of m ended.
func (k *poolkeeper) taken(p *pool, m *member, err error) {
	k.mu.Lock()
	if err == nil {
		p.claims++
		if k.claims.note(k.s.cfg.Clock()) {
			time.AfterFunc(claimPause, k.settle)
		}
	} else {
		k.doomed = append(k.doomed, m)
		defer k.wake()
	}
	k.mu.Unlock()
}

// ran notes that a command begins, or has ended: while what was claimed has its first commands to run, no member is made.
func (k *poolkeeper) ran() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.s.cfg.Clock(); k.claims.pause(now) {
		k.claims.last = now
	}
}

// settle has the keeper look again when what was claimed had its time.
func (k *poolkeeper) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.claims.pause(k.s.cfg.Clock()) {
		time.AfterFunc(claimPause, k.settle)
		return
	}
	k.wake()
}

// take takes a member out that fits: of the run's own pools first, then of those that are for everybody.
func (k *poolkeeper) take(spec sandbox.Spec) (*pool, *member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	shape := spec.Shape()
	for _, p := range k.near(spec) {
		for i, m := range p.members {
			if shape == "" || m.shape != shape || m.dead() {
				continue
			}
			p.members = slices.Delete(p.members, i, i+1)
			return p, m
		}
	}
	return nil, nil
}

// near lists the pools that serve a run, the nearest first. The lock is held.
func (k *poolkeeper) near(spec sandbox.Spec) []*pool {
	var ps []*pool
	for _, p := range k.pools {
		if rank(p.want.PoolRef, spec) >= 0 {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b *pool) int { return rank(a.want.PoolRef, spec) - rank(b.want.PoolRef, spec) })
	return ps
}

// noteDemand counts a run where its sandbox should come from: of two pools that could serve it, the nearer one is to grow.
func (k *poolkeeper) noteDemand(spec sandbox.Spec) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.near(spec) {
		if p.mold.Fits(spec) {
			p.demand.note(k.s.cfg.Clock())
			return
		}
	}
}

// miss counts a run that starts cold at the nearest pool of its image and level, also where that could never
// have served it: somebody who looks for the reason finds it there.
func (k *poolkeeper) miss(spec sandbox.Spec) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.near(spec) {
		if p.mold.Like(spec) {
			p.misses++
			return
		}
	}
}

// startCold counts the cold starts that go on, before which no member is made.
func (k *poolkeeper) startCold() (done func()) {
	k.mu.Lock()
	k.cold++
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		k.cold--
		k.mu.Unlock()
		k.wake()
	}
}
