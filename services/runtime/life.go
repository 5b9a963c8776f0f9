package runtime

import (
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Limits of a sandbox's life where its record has none, and how it is announced.
const (
	defaultLife = 24 * time.Hour
	maxWarning  = time.Minute
	// baseline is how often at least a sandbox is looked at, for what the kernel has killed in it.
	baseline = 10 * time.Second
	// alert is how often one that was told of its stop is looked at: using it makes the warning void.
	alert = time.Second
)

// lifeEntry is a sandbox's life in the journal: points in time, which a restart does not move.
type lifeEntry struct {
	ExpiresAt time.Time              `json:"expires_at"`
	IdleMS    int64                  `json:"idle_ms,omitempty"`
	UsedAt    time.Time              `json:"used_at"` // not later than it really was
	PausedAt  *time.Time             `json:"paused_at,omitempty"`
	Warned    *workspace.StopWarning `json:"warned,omitempty"`
}

// life is how long an interactive sandbox still has. It knows times only and does nothing by itself. While the sandbox is
// paused its time to live goes on and its idleness does not.
type life struct {
	id     string
	active *activity
	total  time.Duration // its time to live when it was made
	warn   time.Duration // as asked for; 0 is a share of each limit

	mu sync.Mutex
	e  lifeEntry
}

// newLife of a sandbox that was started now.
func newLife(b workspace.Sandbox, active *activity, now time.Time) *life {
	l := &life{id: b.ID, active: active, total: limit(b.Run.TTLMS, defaultLife), warn: time.Duration(b.Run.WarnMS) * time.Millisecond}
	l.e = lifeEntry{ExpiresAt: now.Add(l.total), IdleMS: b.Run.IdleMS, UsedAt: now}
	if b.ExpiresAt != nil {
		l.e.ExpiresAt = *b.ExpiresAt
	}
	active.touch()
	return l
}

// oldLife of a sandbox that an earlier process has journaled. Nobody could use it while that process was away, so what is idle
// for too long has the time of a warning left.
func oldLife(b workspace.Sandbox, e lifeEntry, active *activity, now time.Time) *life {
	l := newLife(b, active, e.UsedAt)
	l.e = e
	used := now.Add(l.warning(l.idle()) - l.idle())
	if e.UsedAt.After(used) {
		used = e.UsedAt
	}
	active.last.Store(used.UnixNano())
	return l
}

// lifeOf gives the life of a sandbox from the journal, also where an earlier release wrote it.
func lifeOf(e boxEntry, active *activity, now time.Time) *life {
	if e.Life.ExpiresAt.IsZero() {
		return newLife(e.Sandbox, active, e.StartedAt)
	}
	return oldLife(e.Sandbox, e.Life, active, now)
}

func limit(ms int64, otherwise time.Duration) time.Duration {
	if ms <= 0 {
		return otherwise
	}
	return time.Duration(ms) * time.Millisecond
}

func (l *life) idle() time.Duration { return limit(l.e.IdleMS, defaultLife) }

// warning is how long before its end a limit is announced.
func (l *life) warning(of time.Duration) time.Duration {
	if l.warn > 0 {
		return min(l.warn, of/2)
	}
	return min(maxWarning, of/4)
}

// due is the next that happens to a sandbox nobody uses.
type due struct {
	Reason string
	Warns  time.Time // when it is announced
	Stops  time.Time
}

// due gives it, as it looks at now.
func (l *life) due(now time.Time) due {
	used := l.active.since(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	d := due{Reason: workspace.ReasonTimeout, Stops: l.e.ExpiresAt, Warns: l.e.ExpiresAt.Add(-l.warning(l.total))}
	if l.e.PausedAt != nil {
		return d
	}
	if idle := used.Add(l.idle()); idle.Before(d.Stops) {
		d = due{Reason: workspace.ReasonIdle, Stops: idle, Warns: idle.Add(-l.warning(l.idle()))}
	}
	return d
}

// warned is the warning that was given and is not void; nil if none.
func (l *life) warned() *workspace.StopWarning {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.e.Warned
}

func (l *life) setWarned(w *workspace.StopWarning) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.e.Warned = w
}

// extend moves the end, never nearer, and counts as use.
func (l *life) extend(expires time.Time, idleMS int64) {
	l.active.touch()
	l.mu.Lock()
	defer l.mu.Unlock()
	if expires.After(l.e.ExpiresAt) {
		l.e.ExpiresAt = expires
	}
	if idleMS > 0 {
		l.e.IdleMS = idleMS
	}
}

// setPaused notes a pause, or its end, which counts as use.
func (l *life) setPaused(at *time.Time) {
	l.active.touch()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.e.PausedAt = at
}

func (l *life) paused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.e.PausedAt != nil
}

// mayUse refuses operations on a sandbox that is paused: they would only hang.
func (l *life) mayUse() error {
	if l.paused() {
		return fault.New(fault.Conflict, "sandbox %s is paused; `weft sandbox resume %s` lets it go on", l.id, l.id)
	}
	return nil
}

// entry is what the journal is to keep.
func (l *life) entry(now time.Time) lifeEntry {
	used := l.active.since(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.e.UsedAt = used
	return l.e
}

// stale reports whether the journal's word of the last use is so old that a restart would end the sandbox much too early.
func (l *life) stale(now time.Time) bool {
	used := l.active.since(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return used.Sub(l.e.UsedAt) > max(l.idle()/8, alert)
}

// show puts it into what inspect tells.
func (l *life) show(in *runtime.Inspect, now time.Time) {
	used := l.active.since(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	expires := l.e.ExpiresAt
	in.ExpiresAt, in.Paused, in.Warning = &expires, l.e.PausedAt != nil, l.e.Warned
	if !in.Paused {
		idle := used.Add(l.idle()).UTC()
		in.IdleAt = &idle
	}
}
