package demo

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// judgeKill checks that the agents that ran when the daemon was killed went on as if nothing had happened.
func (s *show) judgeKill(ctx context.Context) error {
	again := []string{}
	for _, before := range s.killed.running {
		now, err := s.c.Task(ctx, before.ID)
		if err != nil {
			return err
		}
		if now.Attempt.Number != before.Attempt.Number || now.Attempt.Sandbox != before.Attempt.Sandbox || now.State != workspace.Complete {
			again = append(again, fmt.Sprintf("%s: attempt %d, %s", before.ID, now.Attempt.Number, now.State))
		}
	}
	s.check(len(again) == 0, "the analysts that ran went on: the same attempt, in the same sandbox", "%s%s",
		plural(len(s.killed.running), "analyst", "analysts"), after(again))
	whole, wrong, err := s.outputs(ctx)
	if err != nil {
		return err
	}
	s.check(len(wrong) == 0, "no output has a gap or a repeat, neither as it was seen live nor as it is kept", "%d bytes%s", whole, after(wrong))
	numbers, away := s.numbers()
	s.res.WhileAway = away
	s.check(len(numbers) == 0, "every analyst's lines are numbered without a hole", "%s%s", plural(len(s.res.Passes[0].Analysts), "analyst", "analysts"), after(numbers))
	s.check(away > 0, "they worked while the mesh was away", "%d of their lines were written in those %.1f s", away, s.res.Away.Seconds())
	return nil
}

// after lists what was wrong.
func after(wrong []string) string {
	if len(wrong) == 0 {
		return ""
	}
	return "; " + strings.Join(wrong, "; ")
}

// outputs compares what was seen live of every task with what is kept, and with the record.
func (s *show) outputs(ctx context.Context) (total int64, wrong []string, err error) {
	s.w.mu.Lock()
	seen := map[string]*followed{}
	order := append([]string{}, s.w.order...)
	for _, id := range order {
		seen[id] = s.w.tasks[id]
	}
	s.w.mu.Unlock()
	for _, id := range order {
		t := seen[id]
		kept, err := s.kept(ctx, id)
		if err != nil {
			return total, wrong, err
		}
		for _, stream := range []string{stdout, stderr} {
			live, was := t.out[stream], kept[stream]
			if live == nil {
				live = &transcript{}
			}
			if was == nil {
				was = &transcript{}
			}
			for _, w := range append(append([]string{}, live.wrong...), was.wrong...) {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %s", t.label, stream, w))
			}
			if !bytes.Equal(live.whole, was.whole) {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %d bytes seen live, %d kept", t.label, stream, len(live.whole), len(was.whole)))
			}
			total += int64(len(was.whole))
		}
		if o := t.Attempt.Outcome; o != nil && kept[stdout] != nil && o.Usage.StdoutBytes != kept[stdout].next {
			wrong = append(wrong, fmt.Sprintf("%s: %d bytes kept, the record says %d", t.label, kept[stdout].next, o.Usage.StdoutBytes))
		}
	}
	return total, wrong, nil
}

// kept reads the output of a task's last attempt from its beginning.
func (s *show) kept(ctx context.Context, id string) (map[string]*transcript, error) {
	out := map[string]*transcript{}
	err := s.c.Output(ctx, workspace.OutputRequest{Task: id}, func(c workspace.OutputChunk) error {
		if out[c.Stream] == nil {
			out[c.Stream] = &transcript{}
		}
		out[c.Stream].take(c)
		return nil
	})
	return out, err
}

// numbers looks at the analysts' numbered lines: what is wrong with them, and how many were written
// while the mesh was away.
func (s *show) numbers() (wrong []string, away int) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, id := range s.res.Passes[0].Analysts {
		t := s.w.tasks[id]
		var ss []step
		if tr := t.out[stdout]; tr != nil {
			ss = steps(tr.whole)
		}
		if err := unbroken(ss); err != nil {
			wrong = append(wrong, t.label+": "+err.Error())
		}
		away += between(ss, s.killed.at, s.killed.back)
	}
	return wrong, away
}

// judgeAttacks checks that nothing that the misbehaving analyst tried had an effect.
func (s *show) judgeAttacks(ctx context.Context) error {
	s.w.mu.Lock()
	for _, id := range s.w.order {
		s.res.Attacks = append(s.res.Attacks, s.w.tasks[id].attacks...)
	}
	s.w.mu.Unlock()
	s.v.block(attackTable(s.res.Attacks)...)
	passed := []string{}
	for _, a := range s.res.Attacks {
		if !a.held() {
			passed = append(passed, fmt.Sprintf("%s (%s)", a.What, a.Code))
		}
	}
	for _, kind := range untried(s.res.Attacks) {
		passed = append(passed, "never tried: "+kind)
	}
	s.check(len(passed) == 0, "every attack was refused, with a code", "%s%s", plural(len(s.res.Attacks), "attack", "attacks"), after(passed))
	s.check(s.probe.came.Load() == 0, "no connection from a sandbox came to the host", "it listened at %s", strings.Join(s.probe.addresses, " and "))
	return s.judgeEffects(ctx)
}

// judgeEffects looks for what an attack would have left, had it not been refused.
func (s *show) judgeEffects(ctx context.Context) error {
	elsewhere, err := s.c.In(other)
	if err != nil {
		return err
	}
	foreign, err := elsewhere.Tasks(ctx, workspace.TaskList{}, 0)
	if err != nil {
		return err
	}
	gs, err := s.c.Grants(ctx, 0)
	if err != nil {
		return err
	}
	s.check(len(foreign) == 0 && len(gs) == len(grants()), "and nothing of it is to be found",
		"%s in workspace %s, %s", plural(len(foreign), "task", "tasks"), other, plural(len(gs), "grant", "grants"))
	return nil
}

func (s *show) judgeFirst(ctx context.Context) error {
	return s.judgeReport(ctx, &s.res.Passes[0], len(s.inv.Files), s.inv.Lines)
}

// judgeMemory checks that facts were superseded, and that what happened is remembered.
func (s *show) judgeMemory(ctx context.Context) error {
	kept := 0
	for _, top := range s.inv.Tops {
		is, err := s.c.MemoryHistory(ctx, "folder:"+top, 0)
		if err != nil {
			return err
		}
		if len(is) == 2 && is[0].ValidTo == nil && is[1].SupersededBy == is[0].ID {
			kept++
		}
	}
	s.check(kept == len(s.inv.Tops), "what memory knew of each folder was superseded, not overwritten", "%d of %d folders have both versions", kept, len(s.inv.Tops))
	found, err := s.c.SearchMemory(ctx, memory.SearchRequest{Query: "audited files changed", Kinds: []memory.Kind{memory.Episodic}})
	if err != nil {
		return err
	}
	s.check(len(found.Hits) == len(s.res.Passes), "a search in memory finds both audits", "%d found", len(found.Hits))
	for _, h := range found.Hits {
		s.v.say("  %s", h.Item.Text)
	}
	return nil
}

// judgeLeases asks the records and Vault about every lease there was.
func (s *show) judgeLeases(ctx context.Context) error {
	ls, err := s.c.Leases(ctx, 0)
	if err != nil {
		return err
	}
	var open, alive []string
	for _, l := range ls {
		there, err := s.vault.alive(ctx, l.Accessor)
		if err != nil {
			return err
		}
		if there {
			alive = append(alive, l.Agent+" in "+l.Sandbox)
		}
		if l.State != secrets.LeaseRevoked {
			open = append(open, l.Agent+" in "+l.Sandbox+" is "+l.State)
		}
		s.res.Leases = append(s.res.Leases, Lease{Sandbox: l.Sandbox, Agent: l.Agent, Secrets: l.Secrets, State: l.State, Alive: there})
	}
	want := 0
	for _, p := range s.res.Passes {
		want += len(p.Analysts) + 1
	}
	s.check(len(ls) >= want && len(open) == 0, "every sandbox with credentials had a lease, and its record says that it is revoked", "%d sandboxes, %d leases%s", want, len(ls), after(open))
	s.check(len(alive) == 0, "Vault itself knows none of them any more", "asked for %d accessors%s", len(ls), after(alive))
	return nil
}
