package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// createTimeout bounds the wait for a sandbox: its image may have to be unpacked first.
const createTimeout = 2 * time.Minute

func (a *app) sandboxCommand() *cobra.Command {
	max := 0
	list := &cobra.Command{Use: "list", Short: "List the interactive sandboxes, the newest first", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.sandboxList(c.Context(), max) }}
	list.Flags().IntVar(&max, "limit", 50, "at most so many, 0 for all")
	get := &cobra.Command{Use: "get SANDBOX", Short: "Show one sandbox", Args: exactly("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error { return a.sandboxGet(c.Context(), args[0]) }}
	inspect := &cobra.Command{Use: "inspect SANDBOX", Short: "Show what a running sandbox is held in and does: isolation, limits, processes, memory, time", Args: exactly("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error { return a.sandboxInspect(c.Context(), args[0]) }}
	kill := &cobra.Command{Use: "kill SANDBOX...", Short: "End sandboxes", Args: oneOrMore("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error { return a.sandboxKill(c.Context(), args) }}
	c := parent("sandbox", groupRun, "Interactive sandboxes: create, run commands, copy files, end",
		a.sandboxCreateCommand(), list, get, inspect, a.execCommand(), a.shellCommand(), a.cpCommand(), a.sandboxFilesCommand(), kill,
		a.psCommand(), a.attachCommand(), a.logsCommand(), a.waitCommand(), a.signalCommand(), a.stopCommand(), a.forgetCommand(), a.portForwardCommand(),
		a.keepAliveCommand(), a.pauseCommand(), a.resumeCommand(), a.forkCommand(), a.sandboxSnapshotCommand())
	c.Aliases = []string{"sbx"}
	return c
}

func (a *app) sandboxCreateCommand() *cobra.Command {
	var r workspace.SandboxCreate
	var env []string
	var ttl, idle, warn, grace time.Duration
	c := &cobra.Command{Use: "create", Short: "Make a sandbox and print its id", Args: exactly(),
		Example: "  id=$(weft sandbox create --template python)\n  weft sandbox exec $id -- python3 -V",
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if r.Env, err = pairs("env", env); err != nil {
				return err
			}
			r.TTLMS, r.IdleMS, r.WarnMS, r.GraceMS = ttl.Milliseconds(), idle.Milliseconds(), warn.Milliseconds(), grace.Milliseconds()
			return a.sandboxCreate(c.Context(), r)
		}}
	f := c.Flags()
	f.StringVar(&r.Template, "template", "", "template to start from (default base)")
	f.StringVar(&r.Level, "level", "", "security level: standard, or high for gVisor (default the template's)")
	f.StringVar(&r.Agent, "agent", "", "as this agent: with its template, files and secrets")
	f.StringArrayVarP(&env, "env", "e", nil, "`NAME=value` in its environment")
	f.StringVar(&r.Claim, "claim", "", "a `NAME` for it: asked for again under the same name, it is the one that is there")
	f.StringVar(&r.Files, "files", "", "the workspace's files in it: private (default), readonly, none")
	f.DurationVar(&ttl, "ttl", 0, "it lives so long (default 1h)")
	f.DurationVar(&idle, "idle", 0, "it ends after so long without use (default 15m; see keep-alive)")
	f.DurationVar(&warn, "warn", 0, "an event says so before it is stopped (default 1m, or a quarter of the limit)")
	f.DurationVar(&grace, "grace", 0, "between SIGTERM and SIGKILL at its end (default 10s)")
	f.Int64Var(&r.Resources.CPUMillis, "cpu", 0, "thousandths of a core")
	f.Var((*bytesValue)(&r.Resources.MemoryBytes), "memory", "memory, as 512MiB")
	f.Var((*bytesValue)(&r.Resources.DiskBytes), "disk", "what it may write, as 1GiB")
	return c
}

func (a *app) sandboxCreate(ctx context.Context, r workspace.SandboxCreate) error {
	if r.Template == "" && r.Agent == "" {
		r.Template = "base"
	}
	return a.with(ctx, func(c *client.Client) error {
		if err := needWorkspace(c); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, createTimeout)
		defer cancel()
		s, err := c.CreateSandbox(ctx, r)
		if err != nil {
			return err
		}
		return a.item(s, func(w io.Writer) { fmt.Fprintln(w, s.ID) })
	})
}

func (a *app) sandboxList(ctx context.Context, max int) error {
	return a.with(ctx, func(c *client.Client) error {
		ss, err := c.Sandboxes(ctx, max)
		if err != nil {
			return err
		}
		return items(a, ss, "sandbox state template node by age ended", func(s workspace.Sandbox) []string {
			return []string{s.ID, s.State, s.Template, s.Node, s.Principal, age(s.CreatedAt), whyEnded(s)}
		})
	})
}

func (a *app) sandboxGet(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		s, err := c.Sandbox(ctx, id)
		if err != nil {
			return err
		}
		idle := ""
		if !a.json {
			idle = idleAt(ctx, c, s)
		}
		return a.item(s, func(w io.Writer) {
			fields(w, "sandbox", s.ID, "state", s.State, "template", s.Template, "claim", s.Claim, "node", s.Node, "principal", s.Principal, "level", s.Run.Level,
				"image", s.Run.Image, "files", s.Run.Files, "created", clock(&s.CreatedAt), "running", clock(s.RunningAt), "paused", clock(s.PausedAt), "expires", clock(s.ExpiresAt), "idle", idle,
				"warning", warning(s.Warning), "stopped", clock(s.StoppedAt), "ended", whyEnded(s))
			printLastOutput(w, s.LastOutput)
		})
	})
}

func (a *app) sandboxInspect(ctx context.Context, id string) error {
	return a.with(ctx, func(c *client.Client) error {
		i, err := c.InspectSandbox(ctx, id)
		if err != nil {
			return err
		}
		return a.item(i, func(w io.Writer) {
			all := []string{"sandbox", i.ID, "level", i.Level, "image", i.Image, "threads", fmt.Sprint(i.PIDs), "memory", size(i.Memory),
				"cpu", (time.Duration(i.CPUMS) * time.Millisecond).String(), "paused", map[bool]string{true: "yes"}[i.Paused], "expires", clock(i.ExpiresAt), "idle", clock(i.IdleAt), "warning", warning(i.Warning)}
			fields(w, append(all, isolationOf(i.Isolation)...)...)
			var rows [][]string
			for _, p := range i.Processes {
				rows = append(rows, processRow(p))
			}
			if len(rows) > 0 {
				a.table([]string{"process", "pid", "state", "command"}, rows)
			}
		})
	})
}

func (a *app) sandboxKill(ctx context.Context, ids []string) error {
	return a.with(ctx, func(c *client.Client) error {
		var out []workspace.Sandbox
		for _, id := range ids {
			s, err := c.KillSandbox(ctx, id)
			if err != nil {
				return fault.Wrap(err, fault.CodeOf(err), "sandbox %s", id)
			}
			if !a.json {
				a.say("sandbox %s ended", id)
			}
			out = append(out, s)
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, out})
		}
		return nil
	})
}
