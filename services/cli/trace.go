package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/app/spans"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
)

// barWidth is how many columns the time axis of a trace has.
const barWidth = 48

func (a *app) traceCommand() *cobra.Command {
	return &cobra.Command{Use: "trace TASK", Short: "Show a task's way through the mesh, step by step", GroupID: groupLook, Args: exactly("TASK"),
		Long: "trace draws the spans of a task's trace from the data directory of this machine's weftd. Where spans go to\na collector (OTEL_EXPORTER_OTLP_ENDPOINT), that has them, too.",
		RunE: func(c *cobra.Command, args []string) error { return a.trace(c.Context(), args[0]) }}
}

func (a *app) trace(ctx context.Context, id string) error {
	cur, err := a.current()
	if err != nil {
		return err
	}
	if cur.DataDir == "" {
		return fault.New(fault.Denied, "traces lie in the data directory of a weftd: use a context with one, on its machine")
	}
	return a.with(ctx, func(c *client.Client) error {
		t, err := c.Task(ctx, id)
		if err != nil {
			return err
		}
		trace := spans.TraceOf(t.Traceparent)
		if trace == "" {
			return fault.New(fault.NotFound, "task %s was submitted without a trace", id)
		}
		ss, err := spans.Read(filepath.Join(cur.DataDir, "traces"), trace)
		if err != nil {
			return fault.Wrap(err, fault.Denied, "the spans can't be read")
		}
		if len(ss) == 0 {
			return fault.New(fault.NotFound, "no span of trace %s is kept any more", trace)
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, ss})
		}
		a.drawTrace(ss)
		return nil
	})
}

// drawTrace prints a line for each span: where it lies in the whole, how long it took, its name under
// its parent's.
func (a *app) drawTrace(ss []spans.Span) {
	begin, end := ss[0].Start, ss[0].End
	known := map[string]bool{}
	children := map[string][]spans.Span{}
	for _, s := range ss {
		known[s.ID] = true
		if s.End.After(end) {
			end = s.End
		}
	}
	for _, s := range ss { // they are sorted by start, so children are, too
		if s.Parent == s.ID || !known[s.Parent] {
			s.Parent = ""
		}
		children[s.Parent] = append(children[s.Parent], s)
	}
	total := max(end.Sub(begin), time.Microsecond)
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range children[parent] {
			from := min(int(s.Start.Sub(begin)*barWidth/total), barWidth-1)
			to := min(max(int(s.End.Sub(begin)*barWidth/total), from+1), barWidth)
			bar := strings.Repeat(" ", from) + a.paint(green, strings.Repeat("█", to-from)) + strings.Repeat(" ", barWidth-to)
			failed := ""
			if s.Failed != "" {
				failed = " " + a.paint(red, cell(s.Failed))
			}
			fmt.Fprintf(a.out, "│%s│%9.2f ms  %s%s %s%s\n", bar, float64(s.End.Sub(s.Start).Microseconds())/1000, indent, cell(s.Name), a.paint(grey, cell(s.Service)), failed)
			if s.ID != "" {
				draw(s.ID, indent+"  ")
			}
		}
	}
	label := short(total)
	fmt.Fprintf(a.out, "│0%s%s│\n", strings.Repeat(" ", max(0, barWidth-1-utf8.RuneCountInString(label))), label)
	draw("", "")
}
