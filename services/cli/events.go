package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

type eventsOptions struct {
	since_        string
	from          uint64
	entities, ids []string
	all, follow   bool
}

func (a *app) eventsCommand() *cobra.Command {
	var o eventsOptions
	c := &cobra.Command{Use: "events", Short: "Show every change of every record, live or from a point on", GroupID: groupLook, Args: exactly(),
		Long: `events shows the log: each change of a task, agent, workspace, lease, snapshot and so on, with the
record after it. Without --since or --from it is live, until Ctrl-C. With one of them it prints
what there is from that point on; -f goes on live.`,
		Example: `  weft events
  weft events --since 1h --entity task
  weft events --from 120 -f --json | jq -c '.item | [.sequence, .entity, .event]'`,
		RunE: func(c *cobra.Command, _ []string) error { return a.events(c.Context(), o) }}
	f := c.Flags()
	f.StringVar(&o.since_, "since", "", "from a time on: 10m, or 2026-01-31T08:00:00Z")
	f.Uint64Var(&o.from, "from", 0, "from a sequence on")
	f.StringSliceVar(&o.entities, "entity", nil, "only these: task, agent, lease, …")
	f.StringSliceVar(&o.ids, "id", nil, "only these records")
	f.BoolVarP(&o.all, "all", "A", false, "of all workspaces of the tenant")
	f.BoolVarP(&o.follow, "follow", "f", false, "with --since or --from: go on live")
	return c
}

func (a *app) events(ctx context.Context, o eventsOptions) error {
	r := workspace.EventsRequest{FromSequence: o.from, Entities: o.entities, IDs: o.ids, Follow: o.follow}
	var err error
	if r.FromTime, err = since("since", o.since_); err != nil {
		return err
	}
	if r.FromTime != nil && r.FromSequence != 0 {
		return fault.New(fault.Invalid, "--since and --from exclude one another")
	}
	if r.FromTime == nil && r.FromSequence == 0 {
		now := time.Now().UTC()
		r.FromTime, r.Follow = &now, true
	}
	return a.with(ctx, func(c *client.Client) error {
		if o.all {
			if c, err = c.In(schemas.NoWorkspace); err != nil {
				return err
			}
		}
		return c.Events(ctx, r, func(e client.Event) error {
			if a.json {
				return a.event("event", e)
			}
			_, err := fmt.Fprintln(a.out, a.eventLine(e, o.all))
			return err
		})
	})
}

// eventLine is a change on one line: when, what, and of tasks the things one looks for.
func (a *app) eventLine(e client.Event, all bool) string {
	who := e.Entity + "/" + e.ID
	if all {
		who = e.Workspace + "/" + who
	}
	s := fmt.Sprintf("%s %6d  %-32s %-10s", e.Time.Local().Format("15:04:05.000"), e.Sequence, cell(who), cell(e.Event))
	if e.Entity == workspace.EntitySandbox {
		var b workspace.Sandbox
		if json.Unmarshal(e.Value, &b) == nil {
			s = strings.TrimRight(s+" "+cell(sandboxEvent(b, e.Event)), " ")
		}
		return s
	}
	if e.Entity != workspace.EntityTask {
		return s
	}
	var t workspace.Task
	if json.Unmarshal(e.Value, &t) != nil {
		return s
	}
	s += " " + cell(what(t))
	if t.Attempt.Node != "" {
		s += fmt.Sprintf(" attempt %d on %s", t.Attempt.Number, cell(t.Attempt.Node))
	}
	if x := exitOf(t); x != "" {
		s += " exit " + x
	}
	if f := failed(t); f != nil {
		s += " " + a.paint(red, cell(f.Code+": "+f.Message))
	}
	return s
}
