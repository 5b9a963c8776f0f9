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

// runOptions are what the command line of run says.
type runOptions struct {
	agent, template string
	level           string
	command         []string
	input, key      string
	env, label      []string
	priority        string
	timeout         time.Duration
	attempts        int
	group           string
	groupSize       int
	detach          bool
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{Use: "run [AGENT] [flags] [-- COMMAND ARG...]", Short: "Run an agent or a command, and follow it", GroupID: groupRun,
		Long: `run submits a task, shows its output live and exits with its exit code. Ctrl-C stops following;
the task goes on, and 'weft task cancel' ends it. A command after -- replaces the agent's own.`,
		Example: `  weft run analyst --input '{"folder": "src"}'
  weft run analyst --input @work.json --key nightly-2026-01-31 --detach
  weft run --template python -- python3 -c 'print(6 * 7)'`,
		Args: func(c *cobra.Command, args []string) error {
			if dash := c.ArgsLenAtDash(); dash >= 0 {
				args, o.command = args[:dash], args[dash:]
			}
			if len(args) > 1 {
				return fmt.Errorf("%q is one argument too many; a command comes after --", args[1])
			}
			if len(args) == 1 {
				o.agent = args[0]
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return a.run(c.Context(), o) }}
	f := c.Flags()
	f.StringVar(&o.template, "template", "", "run the command after -- in this template, without an agent")
	f.StringVar(&o.level, "level", "", "security level: standard, or high for gVisor (default the definition's)")
	f.StringVar(&o.input, "input", "", "input as `JSON`, @file, or - for stdin; the command finds it at $WEFT_INPUT")
	f.StringVar(&o.key, "key", "", "submission key: a repeat with the same key is the same task")
	f.StringArrayVarP(&o.env, "env", "e", nil, "`NAME=value` in the command's environment")
	f.StringArrayVar(&o.label, "label", nil, "`NAME=value` to find the task by")
	f.StringVar(&o.priority, "priority", "", "high, normal or low")
	f.DurationVar(&o.timeout, "timeout", 0, "end an attempt after so long (default the agent's)")
	f.IntVar(&o.attempts, "max-attempts", 0, "try at most so often (default the agent's)")
	f.StringVar(&o.group, "group", "", "the group that the task is one of")
	f.IntVar(&o.groupSize, "group-size", 0, "how many tasks that group has")
	f.BoolVarP(&o.detach, "detach", "d", false, "print the task's id and do not follow")
	return c
}

// submission is what o asks for. In a sandbox the task that runs there is its parent.
func (a *app) submission(o runOptions) (workspace.Submission, error) {
	s := workspace.Submission{Agent: o.agent, Template: o.template, Level: o.level, Command: o.command, Priority: workspace.Priority(o.priority),
		TimeoutMS: o.timeout.Milliseconds(), MaxAttempts: o.attempts, Parent: a.env("WEFT_TASK")}
	switch {
	case o.agent == "" && o.template == "":
		return s, fault.New(fault.Invalid, "say what to run: an agent, or --template T -- COMMAND; 'weft agent list' and 'weft template list' show what there is")
	case o.agent != "" && o.template != "":
		return s, fault.New(fault.Invalid, "name an agent or --template, not both")
	case o.template != "" && len(o.command) == 0:
		return s, fault.New(fault.Invalid, "--template takes a command: weft run --template %s -- COMMAND", o.template)
	case (o.group == "") != (o.groupSize == 0):
		return s, fault.New(fault.Invalid, "--group and --group-size come together")
	case o.group != "":
		s.Group = &workspace.Group{ID: o.group, Size: o.groupSize}
	}
	var err error
	if s.Input, err = a.value("input", o.input); err != nil {
		return s, err
	}
	if s.Env, err = pairs("env", o.env); err != nil {
		return s, err
	}
	s.Labels, err = pairs("label", o.label)
	return s, err
}

func (a *app) run(ctx context.Context, o runOptions) error {
	s, err := a.submission(o)
	if err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		if err := needWorkspace(c); err != nil {
			return err
		}
		sub, err := c.Submit(ctx, s, o.key)
		if err != nil {
			return err
		}
		if o.detach {
			return a.item(sub, func(w io.Writer) { fmt.Fprintln(w, sub.Task) })
		}
		return a.follow(ctx, c, sub)
	})
}

// follow shows a task's output and passes its end.
func (a *app) follow(ctx context.Context, c *client.Client, sub client.Submitted) error {
	t, err := c.Follow(ctx, sub.Task, client.Following{
		Submitted: true,
		State: func(t workspace.Task) error {
			if a.json {
				return a.event("state", t)
			}
			a.progress("%s", a.paint(grey, stateLine(t)))
			return nil
		},
		Output: a.output,
	})
	switch {
	case err != nil && t.State.Final(): // how it ended is worth more than its last line
		if !a.json {
			a.say("weft: %s", message(err))
		}
	case err != nil:
		if ctx.Err() != nil && !a.json {
			a.say("task %s goes on; 'weft task logs -f %s' follows it, 'weft task cancel %s' ends it", sub.Task, sub.Task, sub.Task)
		}
		return err
	}
	if a.json {
		if err := a.event("result", t); err != nil {
			return err
		}
	}
	return a.outcome(t)
}

func stateLine(t workspace.Task) string {
	s := "task " + t.ID + " " + string(t.State)
	switch {
	case t.State == workspace.Running:
		s += fmt.Sprintf(" on %s, attempt %d", t.Attempt.Node, t.Attempt.Number)
	case t.State.Final():
		s += " after " + between2(&t.CreatedAt, t.FinishedAt)
	}
	return s
}

// outcome ends with the code of a task's command. Where there is none, the fault decides.
func (a *app) outcome(t workspace.Task) error {
	var exit *workspace.Exit
	if t.Attempt.Outcome != nil {
		exit = t.Attempt.Outcome.Exit
	}
	f := failed(t)
	switch {
	case t.State == workspace.Complete:
		return nil
	case t.State == workspace.Cancelled:
		a.sayTask(t, "was cancelled")
	case f != nil:
		a.sayTask(t, strings.TrimSuffix(f.Message, "."))
	case exit != nil && exit.Reason != "" && exit.Reason != "exited":
		a.sayTask(t, "ended: "+exit.Reason)
	}
	if exit != nil && exit.Code != 0 {
		return exitCode(exit.Code)
	}
	if f != nil {
		return exitCode(max(ExitCode(fault.FromWire(f.Code, f.Message)), ExitFailed))
	}
	return exitCode(ExitFailed)
}

// sayTask tells people how a task ended; with --json the record has said it.
func (a *app) sayTask(t workspace.Task, how string) {
	if !a.json {
		a.say("weft: task %s: %s", t.ID, how)
	}
}
