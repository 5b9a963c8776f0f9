package runtime

import (
	"cmp"
	"slices"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// What warm pools are kept by. Nothing here looks at a clock or at the machine.

const (
	demandSlot   = 5 * time.Second
	demandSlots  = 120       // ten minutes
	defaultAge   = time.Hour // of a member, at most
	busyLoad     = 3.0       // of each core; above, the machine has more to do than it can
	refillAtOnce = 2
	claimPause   = 150 * time.Millisecond // after a claim: what was claimed has its first command to run
	claimWork    = 10 * time.Millisecond  // of each claim that comes meanwhile
	maxPause     = 2 * time.Second

	destroyAtOnce = 4 // a pool of a thousand that nobody wants any more must not hold up those who run
)

// demand counts how many runs asked for a pool's sandbox, in slots of time.
type demand struct {
	slots [demandSlots]int
	last  int64 // the slot that was written last
}

func (d *demand) note(now time.Time) {
	d.forget(now)
	d.slots[d.last%demandSlots]++
}

// forget empties the slots that have passed since the last look.
func (d *demand) forget(now time.Time) {
	slot := now.UnixNano() / int64(demandSlot)
	for i := max(d.last+1, slot-demandSlots+1); i <= slot; i++ {
		d.slots[i%demandSlots] = 0
	}
	d.last = max(d.last, slot)
}

// peak is the most that were asked for within any two neighbouring slots of the last ten minutes: so much had
// to be there at once, since a pool is filled more slowly than a burst empties it.
func (d *demand) peak(now time.Time) int {
	d.forget(now)
	peak := 0
	for i := d.last - demandSlots + 1; i <= d.last; i++ {
		both := d.slots[(i+demandSlots)%demandSlots]
		if i > d.last-demandSlots+1 {
			both += d.slots[(i-1+demandSlots)%demandSlots]
		}
		peak = max(peak, both)
	}
	return peak
}

// member is a sandbox that waits in a pool.
type member struct {
	box         *sandbox.Sandbox
	made        time.Time
	fingerprint string
	shape       string // see sandbox.Mold
}

// dead reports whether its process 1 has ended.
func (m *member) dead() bool {
	select {
	case <-m.box.Gone():
		return true
	default:
		return false
	}
}

// pool is one warm pool on this node.
type pool struct {
	want        workspace.WantedPool
	mold        sandbox.Mold
	fingerprint string    // of a member that is made now; empty: not known yet
	members     []*member // ready, the oldest first
	making      int
	absent      int // answers of the manager in which it was not wanted
	demand      demand
	claims      uint64
	misses      uint64
	fault       *workspace.Fault
	pause       time.Duration // after a failure, doubling
	retryAt     time.Time
}

// target is how many members the pool wants: what recent demand took at once, but not less than Min or more than Max.
func (p *pool) target(now time.Time) int {
	return max(0, min(max(p.demand.peak(now), p.want.Min), p.want.Max))
}

// maxAge of a member.
func (p *pool) maxAge() time.Duration { return limit(p.want.MaxAgeMS, defaultAge) }

// missing is how many members should be made now.
func (p *pool) missing(now time.Time) int {
	if now.Before(p.retryAt) || p.absent > 0 {
		return 0
	}
	return max(0, p.target(now)-len(p.members)-p.making)
}

// superfluous takes out the members that are to be destroyed: those that are dead, were made from what the template
// was before, or are more than wanted, the oldest first. Of those that are merely old one goes at a time,
// and only while none is missing: the pool is never emptied by age.
func (p *pool) superfluous(now time.Time, dead func(*member) bool) []*member {
	var out []*member
	p.members = slices.DeleteFunc(p.members, func(m *member) bool {
		bad := dead(m) || p.fingerprint != "" && m.fingerprint != p.fingerprint
		if bad {
			out = append(out, m)
		}
		return bad
	})
	target := p.target(now)
	drop := max(0, len(p.members)-target)
	if drop == 0 && len(p.members) > 0 && len(p.members)+p.making >= target && now.Sub(p.members[0].made) > p.maxAge() {
		drop = 1
	}
	out = append(out, p.members[:drop]...)
	p.members = p.members[drop:]
	return out
}

// rank is how near the pool is to a run: 0 its own workspace's, 1 its tenant's, 2 everybody's, -1 another's.
func rank(ref workspace.PoolRef, spec sandbox.Spec) int {
	switch {
	case ref.Tenant == workspace.SystemTenant:
		return 2
	case ref.Tenant != spec.Tenant:
		return -1
	case ref.Workspace == "-":
		return 1
	case ref.Workspace == spec.Workspace:
		return 0
	}
	return -1
}

// machineState is what making members depends on.
type machineState struct {
	closed    bool          // draining, or short of disk or memory
	busy      bool          // more work than it can do
	cold      int           // runs that make a sandbox of their own now
	making    int           // members being made
	sinceLast time.Duration // since the last one was begun
	claimed   bool          // members were just handed over; see claims
	pause     time.Duration // between two while the machine is busy; twice as long cold starts may keep pools from being filled
}

// claims are those that followed one another closely, since the last member was begun.
type claims struct {
	first, last time.Time
	n           int
}

// note counts one, and reports whether it is the first.
func (c *claims) note(now time.Time) bool {
	if c.n == 0 || now.Sub(c.last) >= claimPause {
		c.first, c.n = now, 0
	}
	c.last = now
	c.n++
	return c.n == 1
}

// pause reports whether members are to wait for what was claimed. A burst is let through as a whole; claims that come
// for ever, one after the other, keep no pool from being filled.
func (c *claims) pause(now time.Time) bool {
	return c.n > 0 && now.Sub(c.last) < claimPause && now.Sub(c.first) < min(2*claimPause+time.Duration(c.n)*claimWork, maxPause)
}

// mayBegin is how many members may be begun now: at most two are in the making; one after the other with pauses
// while the machine is busy. What was just claimed runs its first command first, and runs that start cold go first, but not
// for ever.
func (m machineState) mayBegin() int {
	switch {
	case m.closed:
		return 0
	case m.claimed:
		return 0
	case m.cold > 0:
		if m.making > 0 || m.sinceLast < 2*m.pause {
			return 0
		}
		return 1
	case m.busy:
		if m.making > 0 || m.sinceLast < m.pause {
			return 0
		}
		return 1
	}
	return max(0, refillAtOnce-m.making)
}

// neediest is the pool of which the smallest part is there; nil: none misses any.
func neediest(pools []*pool, now time.Time) *pool {
	short := slices.DeleteFunc(slices.Clone(pools), func(p *pool) bool { return p.missing(now) == 0 })
	if len(short) == 0 {
		return nil
	}
	return slices.MinFunc(short, func(a, b *pool) int {
		return cmp.Compare((len(a.members)+a.making)*b.target(now), (len(b.members)+b.making)*a.target(now))
	})
}
