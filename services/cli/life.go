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

func (a *app) keepAliveCommand() *cobra.Command {
	var ttl, idle time.Duration
	c := &cobra.Command{Use: "keep-alive SANDBOX", Short: "Keep a sandbox alive for longer", Args: exactly("SANDBOX"),
		Long: `keep-alive counts as use of a sandbox, and lets it live for --ttl from now on, at most 24 hours: for as
long as it was made for, without the flag. It never shortens a life.

A sandbox ends when its time to live is over, or when nobody has used it for as long as it may be idle.
Commands that somebody waits for, operations on it, and what it sends to the mesh and Vault are use; a
terminal left open and a process in the background are not. A minute before, or a quarter of the limit
where that is shorter, the event "warned" says so; then its processes get SIGTERM, and after the grace SIGKILL.`,
		Example: "  weft sandbox keep-alive $id\n  weft sandbox keep-alive $id --ttl 2h --idle 30m",
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), args, "sandbox %s lives on", func(ctx context.Context, c *client.Client, id string) (workspace.Sandbox, error) {
				return c.KeepSandbox(ctx, id, ttl, idle)
			})
		}}
	c.Flags().DurationVar(&ttl, "ttl", 0, "it lives so long from now on (default: as it was made)")
	c.Flags().DurationVar(&idle, "idle", 0, "its new idle limit (default: as it is)")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning, workspace.SandboxPaused))
	return c
}

func (a *app) pauseCommand() *cobra.Command {
	c := &cobra.Command{Use: "pause SANDBOX...", Short: "Freeze sandboxes where they are", Args: oneOrMore("SANDBOX"),
		Long: `pause stops everything in a sandbox where it is; resume lets it go on. Nobody can use it meanwhile, it keeps
its memory and files, its credentials are given back, and its idleness does not count. Its time to live goes on.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), args, "sandbox %s is paused", pauseOf)
		}}
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning))
	return c
}

func (a *app) resumeCommand() *cobra.Command {
	c := &cobra.Command{Use: "resume SANDBOX...", Short: "Let paused sandboxes go on", Args: oneOrMore("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.each(c.Context(), args, "sandbox %s goes on", resumeOf)
		}}
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxPaused))
	return c
}

func pauseOf(ctx context.Context, c *client.Client, id string) (workspace.Sandbox, error) {
	return c.PauseSandbox(ctx, id)
}

func resumeOf(ctx context.Context, c *client.Client, id string) (workspace.Sandbox, error) {
	return c.ResumeSandbox(ctx, id)
}

// resumeFirst lets a sandbox go on before something is done in it. One that runs goes on anyway.
func (a *app) resumeFirst(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		_, err := c.ResumeSandbox(ctx, id)
		return err
	})
}

// each does the same to several sandboxes, and prints them with --json.
func (a *app) each(ctx context.Context, ids []string, said string, do func(context.Context, *client.Client, string) (workspace.Sandbox, error)) error {
	return a.with(ctx, func(c *client.Client) error {
		var out []workspace.Sandbox
		for _, id := range ids {
			s, err := do(ctx, c, id)
			if err != nil {
				return fault.Wrap(err, fault.CodeOf(err), "sandbox %s: %v", id, err)
			}
			if !a.json {
				a.say(said, id)
			}
			out = append(out, s)
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, out})
		}
		return nil
	})
}

// sandboxNames offers the ids of sandboxes in one of the states.
func sandboxNames(states ...string) func(context.Context, *client.Client) ([]string, error) {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		ss, err := c.Sandboxes(ctx, 100)
		var out []string
		for _, s := range ss {
			for _, state := range states {
				if s.State == state {
					out = append(out, s.ID)
				}
			}
		}
		return out, err
	}
}

// whyEnded is why a sandbox has ended, in a few words.
func whyEnded(s workspace.Sandbox) string {
	switch {
	case s.Fault != nil:
		return s.Fault.Message
	case s.Exit != nil && s.Exit.By != "":
		return s.Exit.Reason + " by " + s.Exit.By
	case s.Exit != nil:
		return s.Exit.Reason
	}
	return ""
}

// warning is what is about to happen to a sandbox.
func warning(w *workspace.StopWarning) string {
	if w == nil {
		return ""
	}
	return fmt.Sprintf("it will be stopped at %s: %s; `weft sandbox keep-alive` keeps it", clock(&w.StopsAt), w.Reason)
}

// idleAt asks a running sandbox when it ends if nobody uses it; empty if it does not answer.
func idleAt(ctx context.Context, c *client.Client, s workspace.Sandbox) string {
	if s.State != workspace.SandboxRunning {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	i, err := c.InspectSandbox(ctx, s.ID)
	if err != nil {
		return ""
	}
	return clock(i.IdleAt)
}

// printLastOutput shows what the processes of a sandbox that has ended wrote last.
func printLastOutput(w io.Writer, out []workspace.LastOutput) {
	for _, o := range out {
		what := "the supervisor"
		if o.Process != "" {
			what = clip(fmt.Sprint(o.Argv), 60)
		}
		for _, s := range [][2]string{{"stdout", o.Stdout}, {"stderr", o.Stderr}} {
			if s[1] == "" {
				continue
			}
			fmt.Fprintf(w, "\nlast %s of %s:\n", s[0], cell(what))
			for line := range strings.Lines(s[1]) {
				fmt.Fprintf(w, "  %s\n", safe(line))
			}
		}
	}
}

// safe is a line without what a terminal would take as an order.
func safe(line string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, line)
}

// sandboxEvent is what an event of a sandbox tells beside its name.
func sandboxEvent(s workspace.Sandbox, event string) string {
	switch {
	case event == workspace.SandboxWarned:
		return warning(s.Warning)
	case event == workspace.SandboxExtended && s.ExpiresAt != nil:
		return "until " + clock(s.ExpiresAt)
	case s.State == workspace.SandboxStopped:
		return whyEnded(s)
	}
	return ""
}
