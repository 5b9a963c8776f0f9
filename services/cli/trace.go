package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/app/spans"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
)

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
		for _, l := range spans.Waterfall(ss, a.columns(), 0) {
			fmt.Fprintln(a.out, l)
		}
		return nil
	})
}

// columns is the width of the terminal, or what a page takes where there is none.
func (a *app) columns() int {
	if f, ok := a.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return w
		}
	}
	return 120
}

// traced runs the command line as a span, under the caller's trace if it has one ($TRACEPARENT): so a trace begins
// where a person typed. The span is kept beside those of a daemon on this machine, if the command asked one.
func (a *app) traced(ctx context.Context, root *cobra.Command) error {
	span, next := spans.Begin("weft", "weft", a.env("TRACEPARENT"))
	cmd, err := root.ExecuteContextC(mesh.WithTraceparent(ctx, next))
	if a.dataDir == "" {
		return err
	}
	span.Name, span.End = cmd.CommandPath(), time.Now()
	if code := exitCode(0); err != nil && !errors.As(err, &code) {
		span.Failed = string(fault.CodeOf(err))
	}
	_ = spans.Record(filepath.Join(a.dataDir, "traces"), span) // an observer's trouble is not the command's
	return err
}
