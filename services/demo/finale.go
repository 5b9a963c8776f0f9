package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/app/spans"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// collect reads the final records, fetches the artifacts, and shows the table and a trace.
func (s *show) collect(ctx context.Context) error {
	s.w.mu.Lock()
	order := append([]string{}, s.w.order...)
	s.w.mu.Unlock()
	for _, id := range order {
		t, err := s.c.Task(ctx, id)
		if err != nil {
			return err
		}
		s.res.Tasks = append(s.res.Tasks, t)
	}
	if err := s.artifacts(ctx); err != nil {
		return err
	}
	s.v.block("", "Tasks, with the milliseconds that each was queued, then until its first output, and until its end:")
	s.v.block(taskTable(s.res.Tasks, s.v.width())...)
	return s.trace(ctx)
}

// mostTasks is how many tasks the table has; of more, the first and the last ones.
const mostTasks = 40

// fullTable is the width from which on a task's whole id has room.
const fullTable = 100

// taskTable is a line for each task. Times are milliseconds: from the submission to the node, from there
// to the first output, and to the end.
func taskTable(tasks []workspace.Task, width int) []string {
	rows := make([][]string, 0, len(tasks))
	for _, t := range tasks {
		a := t.Attempt
		files, leases := "", ""
		if o := a.Outcome; o != nil {
			files, leases = fmt.Sprint(o.FilesChanged), fmt.Sprint(o.Leases)
		}
		id := t.ID
		if width < fullTable {
			id = id[:min(8, len(id))]
		}
		rows = append(rows, []string{id, clip(label(&t), labelWidth-2), string(t.State), fmt.Sprint(a.Number),
			passed(&t.CreatedAt, a.StartedAt), passed(a.StartedAt, a.FirstOutputAt), passed(a.StartedAt, a.EndedAt), files, leases})
	}
	if more := len(rows) - mostTasks; more > 0 {
		gone := []string{"…", fmt.Sprintf("%d more", more), "", "", "", "", "", "", ""}
		rows = append(append(rows[:mostTasks/2:mostTasks/2], gone), rows[len(rows)-mostTasks/2:]...)
	}
	return table([]string{"TASK", "AGENT", "STATE", ">TRY", ">QUEUED", ">OUTPUT", ">TOOK", ">FILES", ">LEASES"}, rows)
}

func passed(from, to *time.Time) string {
	if from == nil || to == nil {
		return "-"
	}
	return fmt.Sprint(to.Sub(*from).Milliseconds())
}

// artifacts fetches the zip of every task, and compares it with the hash in its record.
func (s *show) artifacts(ctx context.Context) error {
	dir := filepath.Join(s.o.Output, "artifacts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pass := map[string]int{}
	for _, p := range s.res.Passes {
		for _, id := range append([]string{p.Planner, p.Reviewer}, p.Analysts...) {
			pass[id] = p.Number
		}
	}
	var wrong []string
	for _, t := range s.res.Tasks {
		if t.Attempt.Outcome == nil || t.Attempt.Outcome.Artifact == "" {
			wrong = append(wrong, t.ID+" has none")
			continue
		}
		at := filepath.Join(dir, artifactName(pass[t.ID], t))
		a, err := s.artifact(ctx, t.Attempt.Outcome.Artifact, at)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", t.ID, err))
			continue
		}
		s.res.Artifacts = append(s.res.Artifacts, at)
		if a.Task != t.ID {
			wrong = append(wrong, t.ID+" has that of "+a.Task)
		}
	}
	s.check(len(wrong) == 0, "every task left an artifact, whole by its hash", "%s%s", plural(len(s.res.Artifacts), "zip", "zips"), after(wrong))
	return nil
}

// artifactName tells of which task a zip is.
func artifactName(pass int, t workspace.Task) string {
	name := fmt.Sprintf("pass-%d-%s", pass, t.Submission.Agent)
	switch folder := t.Submission.Labels[labelFolder]; folder {
	case "":
	case ".":
		name += "-top"
	default:
		name += "-" + strings.ReplaceAll(folder, string(filepath.Separator), "_")
	}
	return name + ".zip"
}

func (s *show) artifact(ctx context.Context, id, at string) (filesystem.Artifact, error) {
	f, err := os.Create(at)
	if err != nil {
		return filesystem.Artifact{}, err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	a, err := s.c.GetArtifact(ctx, id, io.MultiWriter(f, hash))
	if err != nil {
		return a, err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != a.Hash {
		return a, fmt.Errorf("its hash is %s, the record says %s", got, a.Hash)
	}
	return a, f.Close()
}

// traceRows is how many spans are drawn.
const traceRows = 24

// spansWithin is how long the last spans may take to be written.
const spansWithin = 5 * time.Second

// trace draws the way of the second pass's last analyst: nothing was killed under that one.
func (s *show) trace(ctx context.Context) error {
	as := s.res.Passes[len(s.res.Passes)-1].Analysts
	if len(as) == 0 {
		return nil
	}
	t, err := s.c.Task(ctx, as[len(as)-1])
	if err != nil {
		return err
	}
	id := spans.TraceOf(t.Traceparent)
	ss, err := s.readSpans(ctx, id, t)
	if err != nil {
		return err
	}
	ss = spans.Subtree(ss, spans.SpanOf(t.Traceparent))
	s.res.Spans = len(ss)
	s.v.block("", fmt.Sprintf("Trace %s of task %s (%s), service by service:", id, t.ID, label(&t)))
	s.v.block(spans.Waterfall(ss, min(s.v.width(), 120), traceRows)...)
	s.check(len(ss) > 0, "the task's way can be followed through the mesh", "%s", plural(len(ss), "span", "spans"))
	return nil
}

// readSpans reads the spans of a task's trace, once those of its end are written.
func (s *show) readSpans(ctx context.Context, id string, t workspace.Task) ([]spans.Span, error) {
	ctx, cancel := context.WithTimeout(ctx, spansWithin)
	defer cancel()
	for {
		ss, err := spans.Read(filepath.Join(s.d.dataDir, "traces"), id)
		if err != nil {
			return nil, err
		}
		for _, sp := range ss {
			if strings.Contains(sp.Name, "finish") && !sp.Start.Before(t.CreatedAt) {
				return ss, nil
			}
		}
		select {
		case <-ctx.Done():
			return ss, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// close says the last words.
func (s *show) close() {
	v := s.v
	v.block("", v.paint(bold, "Reports"))
	for _, p := range s.res.Passes {
		v.block(fmt.Sprintf("  %s", filepath.Join(s.o.Output, fmt.Sprintf("pass-%d", p.Number), "report.md")))
	}
	v.block(v.paint(bold, "Artifacts"), fmt.Sprintf("  %s (%s)", filepath.Join(s.o.Output, "artifacts"), plural(len(s.res.Artifacts), "zip", "zips")))
	v.block("", v.paint(bold, "`make up` keeps a mesh running. In another terminal, type"))
	v.block(commands...)
	took := fmt.Sprintf("in %.1f s", s.res.Took.Seconds())
	if failed := s.res.Failed(); len(failed) > 0 {
		v.block("", v.paint(red, fmt.Sprintf("✗ %d of %d claims did not hold, %s:", len(failed), len(s.res.Checks), took)))
		for _, c := range failed {
			v.block("  " + c.Claim + ": " + c.Detail)
		}
		return
	}
	v.block("", v.paint(green, fmt.Sprintf("✓ all %d claims held, %s", len(s.res.Checks), took)))
}

// commands are for a person who has just run `make up`.
var commands = []string{
	"  ./bin/weft check                                                   # is every part well?",
	"  ./bin/weft run --template python -- python3 -c 'print(6 * 7)'      # run something in a sandbox",
	"  ./bin/weft sandbox shell $(./bin/weft sandbox create --template base)   # look around in one",
	"  ./bin/weft files put deploy && ./bin/weft files ls -R deploy       # give the workspace files",
	"  ./bin/weft events --since 10m                                      # what happened",
}
