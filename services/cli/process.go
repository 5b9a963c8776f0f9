package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// execOptions are the flags of exec.
type execOptions struct {
	start      runtime.ProcessStart
	background bool
	env        []string
	labels     []string
	rlimits    []string
	user       string
	timeout    time.Duration
	buffer     bytesValue
}

func (o *execOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&o.start.Stdin, "stdin", "i", false, "pass stdin to the command; with -d: leave it open for attach -i")
	f.BoolVarP(&o.start.PTY, "tty", "t", false, "give it a terminal")
	f.StringArrayVarP(&o.env, "env", "e", nil, "`NAME=value` in its environment")
	f.StringVar(&o.start.Workdir, "workdir", "", "`directory` to run it in")
	f.DurationVar(&o.timeout, "timeout", 0, "end it after so long")
	f.StringVarP(&o.user, "user", "u", "", "run it as `UID[:GID]` of the sandbox")
	f.StringArrayVar(&o.rlimits, "ulimit", nil, "`NAME=SOFT[:HARD]`, as nofile=1024:2048")
	f.BoolVarP(&o.background, "background", "d", false, "run it in the background and print its id")
	f.StringVar(&o.start.Name, "name", "", "a `name` for it; with -d")
	f.StringArrayVar(&o.labels, "label", nil, "`NAME=value` that ps shows; with -d")
	f.StringVar(&o.start.Output, "output", "", "when it writes faster than it is read: attached (wait for who is attached) or ring (never wait); with -d")
	f.Var(&o.buffer, "buffer", "how much of each output is kept (default 1MiB); with -d")
	f.BoolVar(&o.background, "detach", false, "the same as --background")
	_ = f.MarkHidden("detach") // what docker's users type
}

// request is what the flags and the command say.
func (o *execOptions) request(argv []string) (runtime.ProcessStart, error) {
	r := o.start
	var err error
	if r.Env, err = pairs("env", o.env); err != nil {
		return r, err
	}
	if r.Labels, err = pairs("label", o.labels); err != nil {
		return r, err
	}
	if r.Argv = argv; r.Argv[0] == "--" {
		r.Argv = r.Argv[1:]
	}
	if !o.background && (r.Name != "" || r.Labels != nil || r.Output != "" || o.buffer != 0) {
		return r, fault.New(fault.Invalid, "--name, --label, --output and --buffer are for processes in the background: add -d")
	}
	r.TimeoutMS, r.Buffer = o.timeout.Milliseconds(), int(o.buffer)
	if r.User, err = userOf(o.user); err != nil {
		return r, err
	}
	for _, l := range o.rlimits {
		limit, err := rlimitOf(l)
		if err != nil {
			return r, err
		}
		r.Rlimits = append(r.Rlimits, limit)
	}
	return r, nil
}

// userOf reads UID[:GID]; a missing GID is the UID.
func userOf(s string) (*runtime.User, error) {
	if s == "" {
		return nil, nil
	}
	uid, gid, two := strings.Cut(s, ":")
	if !two {
		gid = uid
	}
	u, err1 := strconv.ParseUint(uid, 10, 16)
	g, err2 := strconv.ParseUint(gid, 10, 16)
	if err1 != nil || err2 != nil {
		return nil, fault.New(fault.Invalid, "--user %q must be UID or UID:GID, in numbers", s)
	}
	return &runtime.User{UID: uint32(u), GID: uint32(g)}, nil
}

func rlimitOf(s string) (l runtime.Rlimit, err error) {
	name, values, ok := strings.Cut(s, "=")
	soft, hard, two := strings.Cut(values, ":")
	if !two {
		hard = soft
	}
	l.Name = name
	var e1, e2 error
	l.Soft, e1 = strconv.ParseUint(soft, 10, 64)
	l.Hard, e2 = strconv.ParseUint(hard, 10, 64)
	if !ok || e1 != nil || e2 != nil {
		return l, fault.New(fault.Invalid, "--ulimit %q must be NAME=SOFT or NAME=SOFT:HARD", s)
	}
	return l, nil
}

// background starts a process that nobody has to stay with.
func (a *app) background(ctx context.Context, sandbox string, r runtime.ProcessStart) error {
	return a.with(ctx, func(c *client.Client) error {
		if r.PTY {
			r.Rows, r.Cols = a.terminal(true).size()
		}
		p, err := c.StartProcess(ctx, sandbox, r)
		if err != nil {
			return err
		}
		return a.item(p, func(w io.Writer) { fmt.Fprintln(w, p.ID) })
	})
}

func (a *app) psCommand() *cobra.Command {
	all := false
	c := &cobra.Command{Use: "ps SANDBOX", Short: "List the processes of a sandbox", Args: exactly("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				ps, err := cl.Processes(c.Context(), args[0], all)
				if err != nil {
					return err
				}
				return items(a, ps, "process name pid user state age command", processRow)
			})
		}}
	c.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended and were not forgotten")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning))
	return c
}

func processRow(p runtime.Process) []string {
	return []string{p.ID, p.Name, fmt.Sprint(p.PID), fmt.Sprint(p.UID), processState(p), age(p.StartedAt), clip(strings.Join(p.Argv, " "), 60)}
}

func processState(p runtime.Process) string {
	switch {
	case p.Exit != nil:
		return fmt.Sprintf("%s %d", p.Exit.Reason, p.Exit.Code)
	case p.Foreground:
		return "running, exec"
	}
	return "running"
}

func (a *app) attachCommand() *cobra.Command {
	var o client.AttachOptions
	stdin, tail := false, bytesValue(-1)
	c := &cobra.Command{Use: "attach SANDBOX PROCESS", Short: "Follow a process, and exit with its code", Args: exactly("SANDBOX", "PROCESS"),
		Long: `attach shows what is kept of a process's output and what comes, until it ends, and exits with its code. Any
number may be attached. Ctrl-C, or on a terminal Ctrl-P Ctrl-Q, leaves the process running.`,
		RunE: func(c *cobra.Command, args []string) error {
			if tail >= 0 {
				o.Tail = (*int64)(&tail)
			}
			return a.attach(c.Context(), args[0], args[1], o, stdin)
		}}
	f := c.Flags()
	f.BoolVarP(&stdin, "stdin", "i", false, "pass stdin, in the place of whoever did before")
	f.Var(&tail, "tail", "begin with at most so much of what is kept; 0 is only what comes")
	c.ValidArgsFunction = a.completeProcess(false)
	return c
}

func (a *app) attach(ctx context.Context, sandbox, process string, o client.AttachOptions, stdin bool) error {
	return a.with(ctx, func(c *client.Client) error {
		p, err := c.Process(ctx, sandbox, process)
		if err != nil {
			return err
		}
		t := a.terminal(p.PTY && stdin)
		ctx, detach := context.WithCancelCause(ctx)
		defer detach(nil)
		io := a.streams()
		if stdin {
			io.Stdin = &detachable{r: a.in, tty: t.in != nil, detach: func() { detach(errDetached) }}
		}
		stop := t.serve(ctx, c, sandbox, &io)
		if p.PTY && stdin && p.Running {
			rows, cols := t.size()
			_ = c.ResizeProcess(ctx, sandbox, p.ID, rows, cols)
		}
		end, err := c.Attach(ctx, sandbox, p.ID, o, io)
		stop()
		if ctx.Err() != nil {
			a.say("weft: detached; process %s goes on", p.ID)
			if errors.Is(context.Cause(ctx), errDetached) {
				return nil
			}
		}
		if err != nil || end.Exit == nil {
			return err
		}
		return a.ended(runtime.ExecResult{Process: end.ID, Exit: *end.Exit, Message: end.Message})
	})
}

var errDetached = errors.New("detached")

// streams shows a process's output, and where some is missing.
func (a *app) streams() client.Streams {
	return client.Streams{Stdout: a.out, Stderr: a.err, Gap: func(g runtime.Gap) { a.say("weft: %s of %s are missing here", size(g.Lost), g.Stream) }}
}

// detachable looks for Ctrl-P Ctrl-Q on a terminal.
type detachable struct {
	r      io.Reader
	tty    bool
	detach func()
	begun  bool // Ctrl-P was the last key
}

const ctrlP, ctrlQ = 0x10, 0x11

func (d *detachable) Read(b []byte) (int, error) {
	n, err := d.r.Read(b)
	if !d.tty {
		return n, err
	}
	for _, k := range b[:n] {
		if d.begun && k == ctrlQ {
			d.detach()
			return 0, io.EOF
		}
		d.begun = k == ctrlP
	}
	return n, err
}

func (a *app) logsCommand() *cobra.Command {
	follow, tail := false, bytesValue(-1)
	c := &cobra.Command{Use: "logs SANDBOX PROCESS", Short: "Print what is kept of a process's output", Args: exactly("SANDBOX", "PROCESS"),
		RunE: func(c *cobra.Command, args []string) error {
			o := client.AttachOptions{Kept: !follow}
			if tail >= 0 {
				o.Tail = (*int64)(&tail)
			}
			return a.with(c.Context(), func(cl *client.Client) error {
				_, err := cl.Attach(c.Context(), args[0], args[1], o, a.streams())
				return err
			})
		}}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on with what comes, until it ends")
	f.VarP(&tail, "tail", "n", "at most so much of the end, as 4KiB")
	c.ValidArgsFunction = a.completeProcess(false)
	return c
}

func (a *app) waitCommand() *cobra.Command {
	c := &cobra.Command{Use: "wait SANDBOX PROCESS...", Short: "Wait for the end of processes and print their exit codes", Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachProcess(c.Context(), args, func(ctx context.Context, cl *client.Client, p string) (runtime.Process, error) {
				return cl.WaitProcess(ctx, args[0], p)
			}, func(p runtime.Process) { fmt.Fprintln(a.out, p.Exit.Code) })
		}}
	c.ValidArgsFunction = a.completeProcess(true)
	return c
}

func (a *app) signalCommand() *cobra.Command {
	r := runtime.SignalRequest{}
	c := &cobra.Command{Use: "signal SANDBOX PROCESS...", Short: "Send a signal to processes", Args: cobra.MinimumNArgs(2),
		Example: "  weft sandbox signal -s HUP $id web",
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				for _, p := range args[1:] {
					r.Process = p
					if err := cl.SignalProcess(c.Context(), args[0], r); err != nil {
						return err
					}
				}
				return nil
			})
		}}
	f := c.Flags()
	f.StringVarP(&r.Signal, "signal", "s", "TERM", "by name or number")
	f.StringVar(&r.Target, "target", "group", "process, its group, or the tree of all that descend from it")
	c.ValidArgsFunction = a.completeProcess(true)
	return c
}

func (a *app) stopCommand() *cobra.Command {
	grace := 5 * time.Second
	c := &cobra.Command{Use: "stop SANDBOX PROCESS...", Short: "End processes and all that descend from them", Args: cobra.MinimumNArgs(2),
		Long: "stop sends SIGTERM to a process and all that descend from it, SIGKILL after the grace, and returns when none is\nleft. The sandbox goes on; kill ends that.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachProcess(c.Context(), args, func(ctx context.Context, cl *client.Client, p string) (runtime.Process, error) {
				return cl.StopProcess(ctx, args[0], p, grace)
			}, func(p runtime.Process) { a.say("process %s ended", p.ID) })
		}}
	c.Flags().DurationVar(&grace, "grace", grace, "between SIGTERM and SIGKILL, at most 40s; 0 is SIGKILL at once")
	c.ValidArgsFunction = a.completeProcess(true)
	return c
}

func (a *app) forgetCommand() *cobra.Command {
	c := &cobra.Command{Use: "forget SANDBOX PROCESS...", Short: "Remove ended processes and their output", Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(cl *client.Client) error {
				for _, p := range args[1:] {
					if err := cl.ForgetProcess(c.Context(), args[0], p); err != nil {
						return err
					}
				}
				return nil
			})
		}}
	c.ValidArgsFunction = a.completeProcess(true)
	return c
}

// eachProcess does something with the processes of args[0] that the others name, and shows each, or all as JSON.
func (a *app) eachProcess(ctx context.Context, args []string, do func(context.Context, *client.Client, string) (runtime.Process, error), show func(runtime.Process)) error {
	return a.with(ctx, func(c *client.Client) error {
		var out []runtime.Process
		for _, name := range args[1:] {
			p, err := do(ctx, c, name)
			if err != nil {
				return err
			}
			if !a.json {
				show(p)
			}
			out = append(out, p)
		}
		if a.json {
			return a.printJSON(a.out, list{Schema, out})
		}
		return nil
	})
}

// completeProcess offers sandboxes, then the processes of the one that was named; many: more than one.
func (a *app) completeProcess(many bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 || len(args) > 1 && !many {
			return a.complete(sandboxNames(workspace.SandboxRunning))(c, args, begun)
		}
		return a.complete(func(ctx context.Context, cl *client.Client) ([]string, error) {
			ps, err := cl.Processes(ctx, args[0], true)
			var out []string
			for _, p := range ps {
				if p.Name != "" {
					out = append(out, p.Name)
				}
				out = append(out, p.ID)
			}
			return out, err
		})(c, nil, begun)
	}
}
