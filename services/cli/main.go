package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/fault"
)

// Exit codes. Codes above ExitDeadline are those of a command that was run.
const (
	ExitOK          = 0
	ExitFailed      = 1 // a defect, or a check that did not hold
	ExitUsage       = 2 // the command line or what it names is not valid
	ExitNotFound    = 3
	ExitDenied      = 4
	ExitConflict    = 5
	ExitExhausted   = 6 // a quota or limit
	ExitUnavailable = 7 // a part is missing or down
	ExitDeadline    = 8
	ExitInterrupted = 130
)

// Schema names the version of everything that --json prints.
const Schema = "weft.cli.v1"

// Command is one that lives elsewhere and appears in this CLI. It parses its own arguments.
type Command struct {
	Name, Short string
	Run         func(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int
}

// Main runs one command line and gives the exit code. args are those after the program's name, env holds
// NAME=value pairs. extra adds commands.
func Main(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer, extra ...Command) int {
	a := &app{environ: env, in: stdin, out: stdout, err: stderr}
	a.color = isTerminal(stdout) && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"
	root := a.root(extra)
	root.SetArgs(args)
	err := a.traced(ctx, root)
	if err == nil {
		return ExitOK
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if !a.ran { // the command line itself
		err = fault.New(fault.Invalid, "%v", err)
	}
	if ctx.Err() != nil && !fault.Is(err, fault.Deadline) { // the person knows
		return ExitInterrupted
	}
	return a.fail(err)
}

// exitCode ends the program with a code and without a word: all has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ExitCode is the exit code for a failure.
func ExitCode(err error) int {
	switch fault.CodeOf(err) {
	case "":
		return ExitOK
	case fault.Invalid:
		return ExitUsage
	case fault.NotFound:
		return ExitNotFound
	case fault.Denied:
		return ExitDenied
	case fault.Conflict:
		return ExitConflict
	case fault.Exhausted:
		return ExitExhausted
	case fault.Unavailable:
		return ExitUnavailable
	case fault.Deadline:
		return ExitDeadline
	}
	return ExitFailed
}

// app is what all commands share: the world outside, and the global flags.
type app struct {
	environ  []string
	in       io.Reader
	out, err io.Writer
	color    bool
	ran      bool   // a command was found and its flags are right
	dataDir  string // of the mesh that was asked, if it is on this machine

	json      bool
	context   string
	workspace string
}

func (a *app) root(extra []Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "weft",
		Short: "A self-hosted cloud for AI agents",
		Long: `weft works with a Weft mesh: workspaces in which agents run code in isolated
containers, with files, credentials, memory and messages.

Start a mesh on this machine with 'weft up', then in another terminal try
'weft run --template base -- echo hello'.`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) { a.ran = true },
		Args:             cobra.NoArgs,
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "print JSON (schema "+Schema+"), for programs")
	f.StringVar(&a.context, "context", "", "which mesh, and as whom ($WEFT_CONTEXT; see 'weft context')")
	f.StringVarP(&a.workspace, "workspace", "w", "", "workspace, - for the tenant as a whole ($WEFT_WORKSPACE)")
	for _, g := range []struct{ id, title string }{
		{groupRun, "Run things:"}, {groupLook, "See what happens:"}, {groupHave, "What a workspace has:"}, {groupMesh, "The mesh:"},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	root.AddCommand(
		a.runCommand(), a.taskCommand(), a.sandboxCommand(), a.applyCommand(),
		a.eventsCommand(), a.traceCommand(), a.msgCommand(), a.artifactCommand(),
		a.agentCommand(), a.templateCommand(), a.poolCommand(), a.triggerCommand(), a.filesCommand(), a.snapshotCommand(), a.secretCommand(), a.memoryCommand(),
		a.upCommand(), a.contextCommand(), a.tenantCommand(), a.workspaceCommand(), a.nodeCommand(), a.dlqCommand(), a.checkCommand(), a.versionCommand(),
	)
	for _, x := range extra {
		root.AddCommand(a.extraCommand(x))
	}
	return root
}

// Groups of commands in the help.
const (
	groupRun  = "run"
	groupLook = "look"
	groupHave = "have"
	groupMesh = "mesh"
)

func (a *app) extraCommand(x Command) *cobra.Command {
	return &cobra.Command{Use: x.Name, Short: x.Short, GroupID: groupMesh, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if code := x.Run(c.Context(), args, a.environ, a.in, a.out, a.err); code != 0 {
				return exitCode(code)
			}
			return nil
		}}
}

// parent is a command that only groups others.
func parent(name, group, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, GroupID: group, Args: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no command '%s %s'; see '%s --help'", c.CommandPath(), args[0], c.CommandPath())
		}
		return nil
	}, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(children...)
	return c
}

// exactly refuses another number of arguments than the names given, and says which one is missing.
func exactly(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between takes at least least of the named arguments, and no more than there are names.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s; see '%s --help'", names[len(args)], c.UseLine(), c.CommandPath())
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many: %s", args[len(names)], c.UseLine())
		}
		return nil
	}
}

// oneOrMore takes any number of the thing named.
func oneOrMore(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s is missing: %s; see '%s --help'", name, c.UseLine(), c.CommandPath())
		}
		return nil
	}
}

// env is the value of an environment variable, empty if it is not set.
func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(a.environ[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

func isTerminal(x any) bool {
	f, ok := x.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
