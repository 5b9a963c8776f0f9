package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// death is why a sandbox is to be ended, and who wants it.
type death struct {
	reason, by string
	discard    bool // it is no sandbox of anybody's yet: nothing of it is kept or reported
}

// asked is something that is done to a sandbox between two looks at it.
type asked struct {
	ctx context.Context
	do  func(context.Context) error
	err chan error
}

// live watches over the sandbox until it ends, or ctx does: then it goes on without us. It alone changes what is journaled.
func (i *interactive) live(ctx context.Context) {
	defer close(i.done)
	defer i.close()
	news, quiet := context.WithCancel(ctx)
	defer quiet()
	i.s.work.Go(func() { i.spread(news) })
	look := time.NewTimer(i.firstLook())
	defer look.Stop()
	noted := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.h.lost:
			i.abandon(ctx)
			return
		case <-i.h.stop:
			i.die(ctx, death{reason: reasonCancelled})
			return
		case <-i.box.Gone():
			i.gone()
			i.end(ctx)
			return
		case d := <-i.kill:
			if d.discard {
				i.undo(ctx)
			} else {
				i.die(ctx, d)
			}
			return
		case a := <-i.asks:
			a.err <- a.do(a.ctx)
		case <-look.C:
		}
		if !noted {
			if err := i.note(); err != nil {
				i.s.log.Error("a sandbox's start can't be journaled", "sandbox", i.h.sandbox, "error", err)
			}
			noted = true
		}
		why, again := i.look()
		if why != "" {
			i.die(ctx, death{reason: why})
			return
		}
		look.Reset(again)
	}
}

// firstLook is when to look for the first time: what was just made has its first command to run.
func (i *interactive) firstLook() time.Duration {
	now := i.s.cfg.Clock()
	return max(0, min(time.Second, i.life.due(now).Warns.Sub(now)))
}

// do has live do something, and gives its error. One that has ended is not found.
func (i *interactive) do(ctx context.Context, f func(context.Context) error) error {
	a := asked{ctx, f, make(chan error, 1)}
	select {
	case i.asks <- a:
	case <-i.done:
		return notHere(i.h.sandbox)
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-a.err
}

func notHere(id string) error { return fault.New(fault.NotFound, "sandbox %s is not on this node", id) }

// look gives why the sandbox is to be ended now, "" if it isn't, and when to look again. It warns before.
func (i *interactive) look() (why string, again time.Duration) {
	now := i.s.cfg.Clock()
	i.oom.look(i.box.OOMKills(), now)
	d := i.life.due(now)
	if !now.Before(d.Stops) {
		return d.Reason, 0
	}
	w, journal := i.life.warned(), i.life.stale(now)
	again = min(d.Stops.Sub(now), baseline)
	switch warn := !now.Before(d.Warns); {
	case warn && (w == nil || w.Reason != d.Reason || !w.StopsAt.Equal(d.Stops)):
		i.warn(&workspace.StopWarning{Reason: d.Reason, At: now.UTC(), StopsAt: d.Stops.UTC()})
		journal, again = true, min(again, alert)
	case warn:
		again = min(again, alert)
	default:
		if w != nil {
			i.warn(nil)
			journal = true
		}
		again = min(again, d.Warns.Sub(now))
	}
	if journal {
		if err := i.journal(); err != nil {
			i.s.log.Error("a sandbox's life can't be journaled", "sandbox", i.h.sandbox, "error", err)
		}
	}
	return "", max(again, time.Millisecond)
}

// warn says that the sandbox is about to be stopped; with nil, that it no longer is.
func (i *interactive) warn(w *workspace.StopWarning) {
	i.life.setWarned(w)
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// spread tells the manager of the warning as it stands, for as long as ctx goes on. It holds up nothing else.
func (i *interactive) spread(ctx context.Context) {
	a := i.steps()
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.news:
		}
		_ = a.mayFail(ctx, "warn", func(ctx context.Context) error {
			return i.s.cfg.Manager.SandboxWarned(ctx, runtime.SandboxWarned{Tenant: i.h.item.Tenant, Workspace: i.h.item.Workspace, ID: i.h.sandbox, Warning: i.life.warned()})
		})
	}
}

// die ends the sandbox: its processes are told and have a moment, then they are killed.
func (i *interactive) die(ctx context.Context, d death) {
	i.e.Exit = &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: d.reason, By: d.by}
	i.tell(ctx, i.grace(d.reason))
	i.end(ctx)
}

// grace is how long its processes have between SIGTERM and SIGKILL. What is cancelled has no more than an attempt has.
func (i *interactive) grace(reason string) time.Duration {
	g := limit(i.e.Sandbox.Run.GraceMS, i.s.cfg.timing.grace)
	if reason == reasonCancelled {
		g = min(g, i.s.cfg.timing.grace)
	}
	return g
}

// slack is how much longer than its grace the end of all processes may take.
const slack = 5 * time.Second

// tell lets what runs in it end in its own way, for a moment, and then hears what it said. One that is paused goes on for
// that; one whose claim could not be renewed stays frozen, and is killed as it is.
func (i *interactive) tell(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace+slack+harvestTime)
	defer cancel()
	ctx, stop := until(ctx, i.box.Gone(), errGone)
	defer stop()
	if err := i.h.resume(ctx); err != nil || i.h.still() {
		i.e.LastOutput = i.words.all(i.box.InitLog(tailBytes))
		return
	}
	kill, over := context.WithTimeout(ctx, grace+slack)
	_ = i.box.Supervisor().KillAll(kill, grace) // what it leaves is killed next
	over()
	i.words.harvest(ctx, i.box)
	i.e.LastOutput = i.words.all(i.box.InitLog(tailBytes))
}

// gone notes how the sandbox died by itself.
func (i *interactive) gone() {
	i.e.LastOutput = i.words.all(i.box.InitLog(tailBytes))
	if i.oom.is(i.box.OOMKills(), i.s.cfg.Clock()) {
		i.e.Exit = &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: reasonOOM}
		return
	}
	if i.box.OutOfPIDs() {
		i.e.Exit = &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: workspace.ReasonPIDs}
		return
	}
	i.e.Exit = &workspace.Exit{Code: -1, Reason: reasonExited}
	i.e.Fault = &workspace.Fault{Code: string(fault.Unavailable), Message: "the sandbox ended by itself"}
}

// oomWatch tells a sandbox that died of want of memory from one in which, long ago, something else did.
type oomWatch struct {
	count int
	rose  time.Time
}

func (o *oomWatch) look(count int, now time.Time) {
	if count > o.count {
		o.count, o.rose = count, now
	}
}

// is reports whether the kernel has just killed something in the sandbox.
func (o *oomWatch) is(count int, now time.Time) bool {
	return count > o.count || !o.rose.IsZero() && now.Sub(o.rose) < baseline
}
