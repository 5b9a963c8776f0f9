package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/pkg/app/spans"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// work is the planner's input.
type work struct {
	Pass      int      `json:"pass"`
	Slow      float64  `json:"slow"` // seconds that an analyst takes at least
	Misbehave *targets `json:"misbehave,omitempty"`
}

// targets are what the misbehaving analyst tries to reach.
type targets struct {
	Workspace string   `json:"workspace"`
	Addresses []string `json:"addresses"`
}

// killing is what was so when the daemon was killed.
type killing struct {
	at, back time.Time
	running  []workspace.Task // analysts
}

// firstPass audits the code base, and kills the daemon in the middle.
func (s *show) firstPass(ctx context.Context) error {
	var err error
	if s.probe, err = openProbe(); err != nil {
		return err
	}
	if err := s.probe.reachable(ctx); err != nil {
		return fmt.Errorf("the host does not reach its own addresses %v: %w", s.probe.addresses, err)
	}
	if s.vault, err = openVault(s.d.dataDir); err != nil {
		return err
	}
	s.watch()
	return s.pass(ctx, work{Pass: 1, Slow: s.o.Slow.Seconds(), Misbehave: &targets{Workspace: other, Addresses: s.probe.addresses}}, s.crash)
}

// watch begins the live view. It ends with the show, not with the stage.
func (s *show) watch() {
	s.w = newWatch(s.c, s.v)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.w.run(ctx) }()
	s.unlock = func() { cancel(); <-done }
}

// pass runs one audit. middle is called when it has begun; nil for nothing.
func (s *show) pass(ctx context.Context, in work, middle func(context.Context, *Pass) error) error {
	began := time.Now()
	p := &Pass{Number: in.Pass}
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	span, traceparent := spans.Begin(fmt.Sprintf("audit, pass %d", in.Pass), "demo", "")
	defer func() {
		span.End = time.Now()
		_ = spans.Record(filepath.Join(s.d.dataDir, "traces"), span) // what the pass causes is found by it
	}()
	sub, err := s.c.Submit(mesh.WithTraceparent(ctx, traceparent), workspace.Submission{Agent: planner, Input: input}, fmt.Sprintf("audit-pass-%d", in.Pass))
	if err != nil {
		return err
	}
	p.Planner = sub.Task
	if middle != nil {
		if err := middle(ctx, p); err != nil {
			return err
		}
	}
	if err := s.w.until(ctx, "the end of the planner, the analysts and the reviewer", func() (bool, error) { return s.finished(p) }); err != nil {
		return err
	}
	p.Took = time.Since(began)
	s.res.Passes = append(s.res.Passes, *p)
	s.check(len(p.Analysts) == len(s.inv.Tops), "every top folder had its analyst, and the reviewer was started once, when all had reported",
		"%s, %s, in %.1f s", plural(len(s.inv.Tops), "folder", "folders"), plural(len(p.Analysts), "analyst", "analysts"), p.Took.Seconds())
	return nil
}

// group is what the planner calls the analysts of a pass, see planner.py.
func (p *Pass) group() string { return "audit-" + p.Planner }

// finished reports whether everything of a pass has ended well. The watch's lock is held.
func (s *show) finished(p *Pass) (bool, error) {
	pl := s.w.tasks[p.Planner]
	as := s.w.children(p.Planner)
	g := s.w.gathers[p.group()]
	rv := s.w.tasks[g.Task]
	if err := unlucky(append(as, pl, rv)...); err != nil {
		return false, err
	}
	if pl == nil || rv == nil || !ended(append(as, pl, rv)...) {
		return false, nil
	}
	p.Reviewer, p.Analysts = rv.ID, nil
	for _, a := range as {
		p.Analysts = append(p.Analysts, a.ID)
	}
	return true, nil
}

// begun is after how many of its lines an analyst counts as one that is in the middle.
const begun = 3

// crash waits until agents run, kills the daemon, and starts it again.
func (s *show) crash(ctx context.Context, p *Pass) error {
	want := min(2, len(s.inv.Tops))
	err := s.w.until(ctx, plural(want, "analyst that runs", "analysts that run at once"), func() (bool, error) {
		s.killed.running = nil
		for _, t := range s.w.children(p.Planner) {
			if tr := t.out[stdout]; t.State == workspace.Running && tr != nil && len(steps(tr.whole)) >= begun {
				s.killed.running = append(s.killed.running, t.Task)
			}
		}
		return len(s.killed.running) >= want, unlucky(append(s.w.children(p.Planner), s.w.tasks[p.Planner])...)
	})
	if err != nil {
		return err
	}
	if err := s.leasesAlive(ctx); err != nil {
		return err
	}
	pid := s.d.cmd.Process.Pid
	s.killed.at = time.Now()
	if err := s.d.kill(); err != nil {
		return err
	}
	s.v.loud("weftd (pid %d) is killed with SIGKILL: no bus, no services. In the middle of their work: %s", pid, plural(len(s.killed.running), "analyst", "analysts"))
	select { // long enough for a person to see that it is quiet
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
	}
	if err := s.d.start(ctx); err != nil {
		return err
	}
	s.killed.back = time.Now()
	s.res.Away = s.killed.back.Sub(s.killed.at)
	s.v.loud("weftd (pid %d) is back; the mesh was away for %.1f s", s.d.cmd.Process.Pid, s.res.Away.Seconds())
	return nil
}

// leasesAlive asks Vault about the leases of agents that run, so that their absence later means something.
func (s *show) leasesAlive(ctx context.Context) error {
	ls, err := s.c.Leases(ctx, 0)
	if err != nil {
		return err
	}
	active, alive := 0, 0
	for _, l := range ls {
		if l.State != secrets.LeaseActive {
			continue
		}
		active++
		if ok, err := s.vault.alive(ctx, l.Accessor); err != nil {
			return err
		} else if ok {
			alive++
		}
	}
	s.check(alive > 0, "while agents run, Vault has their leases", "%d of %d active ones are there", alive, active)
	return nil
}

// secondPass audits a copy in which three files are edited.
func (s *show) secondPass(ctx context.Context) error {
	var err error
	if s.res.Edits, err = change(s.src, s.inv.Files); err != nil {
		return err
	}
	lines := s.inv.Lines
	for _, e := range s.res.Edits {
		s.v.say("edited %s: %s, %d → %d lines", e.Path, e.What, e.Before, e.After)
		lines += e.After - e.Before
	}
	rep, err := s.put(ctx, filesystem.PutRequest{Path: "src", Tar: true, Replace: true}, "", false)
	if err != nil {
		return err
	}
	s.v.say("files: the head is now snapshot %s", rep.Snapshot)
	if err := s.pass(ctx, work{Pass: 2}, nil); err != nil {
		return err
	}
	p := &s.res.Passes[1]
	if err := s.judgeReport(ctx, p, len(s.inv.Files), lines); err != nil {
		return err
	}
	s.judgeChanges(p.Report)
	return s.judgeMemory(ctx)
}
