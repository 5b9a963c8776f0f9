package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) taskCommand() *cobra.Command {
	get := &cobra.Command{Use: "get TASK", Short: "Show one task", Args: exactly("TASK"),
		RunE: func(c *cobra.Command, args []string) error { return a.taskGet(c.Context(), args[0]) }}
	history := &cobra.Command{Use: "history TASK", Short: "Show every change of a task", Args: exactly("TASK"),
		RunE: func(c *cobra.Command, args []string) error { return a.taskHistory(c.Context(), args[0]) }}
	cancel := &cobra.Command{Use: "cancel TASK...", Short: "Ask for the end of tasks", Args: oneOrMore("TASK"),
		RunE: func(c *cobra.Command, args []string) error { return a.taskCancel(c.Context(), args) }}
	retry := &cobra.Command{Use: "retry TASK", Short: "Submit a finished task again", Args: exactly("TASK"),
		RunE: func(c *cobra.Command, args []string) error { return a.taskRetry(c.Context(), args[0]) }}
	return parent("task", groupRun, "Submit, list, read and end tasks",
		a.taskSubmitCommand(), a.taskListCommand(), get, history, a.taskLogsCommand(), a.taskWaitCommand(), cancel, retry)
}

func (a *app) taskSubmitCommand() *cobra.Command {
	var key string
	c := &cobra.Command{Use: "submit FILE", Short: "Submit a task as JSON, - for stdin", Args: exactly("FILE"),
		Long: "submit hands in a submission as JSON (schemas/json/workspace.Submission.schema.json) and prints the\ntask's id. When it returns the task is accepted and never lost. 'weft run' is the same from flags.",
		RunE: func(c *cobra.Command, args []string) error { return a.taskSubmit(c.Context(), args[0], key) }}
	c.Flags().StringVar(&key, "key", "", "submission key: a repeat with the same key is the same task")
	return c
}

func (a *app) taskSubmit(ctx context.Context, file, key string) error {
	b, err := a.read(file)
	if err != nil {
		return err
	}
	var s workspace.Submission
	if err := strict(b, &s); err != nil {
		return fault.New(fault.Invalid, "%s is not a submission: %v", file, err)
	}
	return a.with(ctx, func(c *client.Client) error {
		sub, err := c.Submit(ctx, s, key)
		if err != nil {
			return err
		}
		return a.item(sub, func(w io.Writer) { fmt.Fprintln(w, sub.Task) })
	})
}

type taskFilter struct {
	states, label        []string
	agent, group, since_ string
	limit                int
}

func (a *app) taskListCommand() *cobra.Command {
	var o taskFilter
	c := &cobra.Command{Use: "list", Short: "List tasks, the newest first", Args: exactly(),
		Example: "  weft task list --state running,queued\n  weft task list --agent analyst --since 1h --json",
		RunE:    func(c *cobra.Command, _ []string) error { return a.taskList(c.Context(), o) }}
	f := c.Flags()
	f.StringSliceVar(&o.states, "state", nil, "pending, queued, running, complete, error, cancelled, rejected")
	f.StringVar(&o.agent, "agent", "", "of this agent")
	f.StringVar(&o.group, "group", "", "of this group")
	f.StringArrayVar(&o.label, "label", nil, "with the label NAME=value")
	f.StringVar(&o.since_, "since", "", "submitted since: 10m, or a time")
	f.IntVar(&o.limit, "limit", 50, "at most so many, 0 for all")
	return c
}

func (a *app) taskList(ctx context.Context, o taskFilter) error {
	filter := workspace.TaskList{Agent: o.agent, Group: o.group}
	for _, s := range o.states {
		filter.States = append(filter.States, workspace.State(s))
	}
	var err error
	if filter.Labels, err = pairs("label", o.label); err != nil {
		return err
	}
	if filter.Since, err = since("since", o.since_); err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		ts, err := c.Tasks(ctx, filter, o.limit)
		if err != nil {
			return err
		}
		return items(a, ts, "task agent state attempt node exit time age", func(t workspace.Task) []string {
			return []string{t.ID, what(t), a.state(t.State), attempt(t), t.Attempt.Node, exitOf(t), took(t), age(t.CreatedAt)}
		})
	})
}

// what names what a task runs.
func what(t workspace.Task) string {
	if t.Submission.Agent != "" {
		return t.Submission.Agent
	}
	return clip(t.Submission.Template+": "+strings.Join(t.Submission.Command, " "), 30)
}

func attempt(t workspace.Task) string {
	if t.Attempt.Number == 0 {
		return ""
	}
	return fmt.Sprint(t.Attempt.Number)
}

func exitOf(t workspace.Task) string {
	if o := t.Attempt.Outcome; o != nil && o.Exit != nil {
		if o.Exit.Reason != "" && o.Exit.Reason != "exited" {
			return fmt.Sprintf("%d (%s)", o.Exit.Code, o.Exit.Reason)
		}
		return fmt.Sprint(o.Exit.Code)
	}
	return ""
}

// took is how long a task's last attempt ran.
func took(t workspace.Task) string {
	if t.Attempt.StartedAt != nil && t.Attempt.EndedAt == nil && !t.State.Final() {
		return age(*t.Attempt.StartedAt)
	}
	return between2(t.Attempt.StartedAt, t.Attempt.EndedAt)
}

func (a *app) taskGet(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		t, err := c.Task(ctx, id)
		if err != nil {
			return err
		}
		return a.item(t, func(w io.Writer) { a.describe(w, t) })
	})
}

func (a *app) describe(w io.Writer, t workspace.Task) {
	at := t.Attempt
	fs := []string{"task", t.ID, "state", a.state(t.State), "runs", what(t), "submitted by", t.Principal, "key", t.Key,
		"labels", labels(t.Submission.Labels), "submitted", clock(&t.CreatedAt), "finished", clock(t.FinishedAt),
		"attempt", attempt(t), "node", at.Node, "sandbox", at.Sandbox, "exit", exitOf(t),
		"queued", between2(&at.QueuedAt, at.StartedAt), "to first output", between2(at.StartedAt, at.FirstOutputAt), "ran", took(t),
		"started by", t.Trigger, "parent", t.Submission.Parent}
	if f := failed(t); f != nil {
		fs = append(fs, "reason", f.Code+": "+f.Message)
	}
	if o := at.Outcome; o != nil {
		fs = append(fs, "files changed", fmt.Sprint(o.FilesChanged), "conflicts", strings.Join(o.Conflicts, " "), "snapshot", o.Snapshot, "artifact", o.Artifact,
			"leases", fmt.Sprint(o.Leases), "output", size(o.Usage.StdoutBytes+o.Usage.StderrBytes), "memory", size(o.Usage.MaxRSSBytes),
			"cpu", (time.Duration(o.Usage.CPUMS) * time.Millisecond).String())
	}
	for _, p := range t.Previous {
		if p.Fault != nil {
			fs = append(fs, fmt.Sprintf("attempt %d", p.Number), p.Fault.Code+": "+p.Fault.Message)
		}
	}
	fields(w, fs...)
}

// failed is why a task did not end well, if somebody said so.
func failed(t workspace.Task) *workspace.Fault {
	if t.Fault != nil {
		return t.Fault
	}
	if t.State.Final() {
		return t.Attempt.Fault
	}
	return nil
}

func (a *app) taskHistory(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		hs, err := c.TaskHistory(ctx, id)
		if err != nil {
			return err
		}
		var first time.Time
		if len(hs) > 0 {
			first = hs[0].Time
		}
		return items(a, hs, "sequence after event state attempt node", func(h workspace.Change[workspace.Task]) []string {
			return []string{fmt.Sprint(h.Sequence), short(h.Time.Sub(first)), h.Event, a.state(h.Value.State), attempt(h.Value), h.Value.Attempt.Node}
		})
	})
}

func (a *app) taskCancel(ctx context.Context, ids []string) error {
	return a.with(ctx, func(c *client.Client) error {
		var out []workspace.Task
		for _, id := range ids {
			t, err := c.CancelTask(ctx, id)
			if err != nil {
				return fault.Wrap(err, fault.CodeOf(err), "task %s", id)
			}
			if !a.json {
				a.say("task %s: %s", id, cancelled(t))
			}
			out = append(out, t)
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, out})
		}
		return nil
	})
}

func cancelled(t workspace.Task) string {
	if t.State.Final() {
		return string(t.State)
	}
	return "its end is asked for"
}

func (a *app) taskRetry(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		t, err := c.RetryTask(ctx, id)
		if err != nil {
			return err
		}
		return a.item(t, func(w io.Writer) { fmt.Fprintln(w, t.ID) })
	})
}

func (a *app) taskWaitCommand() *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{Use: "wait TASK", Short: "Wait for a task's end and exit with its code", Args: exactly("TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return a.with(ctx, func(cl *client.Client) error {
				t, err := cl.Wait(ctx, args[0])
				if err != nil {
					return err
				}
				if err := a.item(t, func(io.Writer) {}); err != nil {
					return err
				}
				return a.outcome(t)
			})
		}}
	c.Flags().DurationVar(&limit, "timeout", 0, "wait at most so long (default for ever)")
	return c
}

type logsOptions struct {
	follow  bool
	attempt int
	stream  string
}

func (a *app) taskLogsCommand() *cobra.Command {
	var o logsOptions
	c := &cobra.Command{Use: "logs TASK", Short: "Print a task's output", Args: exactly("TASK"),
		Long: "logs prints what a task wrote: its stdout to stdout, its stderr to stderr.",
		RunE: func(c *cobra.Command, args []string) error { return a.taskLogs(c.Context(), args[0], o) }}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the attempt has ended")
	f.IntVar(&o.attempt, "attempt", 0, "of this attempt (default the last)")
	f.StringVar(&o.stream, "stream", "", "only stdout, stderr or log")
	return c
}

func (a *app) taskLogs(ctx context.Context, id string, o logsOptions) error {
	return a.with(ctx, func(c *client.Client) error {
		return c.Output(ctx, workspace.OutputRequest{Task: id, Attempt: o.attempt, Follow: o.follow}, func(ch workspace.OutputChunk) error {
			if o.stream != "" && o.stream != ch.Stream {
				return nil
			}
			return a.output(ch)
		})
	})
}

// output prints one piece of a task's output where it belongs.
func (a *app) output(ch workspace.OutputChunk) error {
	if a.json {
		return a.event("output", ch)
	}
	if ch.Gap > 0 {
		a.say("[%s of %s before this are no longer kept]", size(ch.Gap), ch.Stream)
	}
	w := a.out
	if ch.Stream != "stdout" {
		w = a.err
	}
	_, err := w.Write(ch.Data)
	return err
}
