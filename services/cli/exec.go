package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	resume := false
	c := &cobra.Command{Use: "exec [flags] SANDBOX [--] COMMAND [ARG...]", Short: "Run a command in a sandbox and exit with its code",
		Long: `exec runs a command, passes its output and exits with its code. The command ends when this program does; when
weftd restarts meanwhile, it goes on and so does its output. With -d it runs in the background: exec prints its
id, and ps, attach, logs, wait, signal and stop find it by that, or by its --name.`,
		Example: "  weft sandbox exec $id -- ls -l /workspace\n  tar c src | weft sandbox exec -i $id -- tar x -C /workspace\n  weft sandbox exec -d --name web $id -- python3 -m http.server 8000",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = slices.Concat(args[:1], args[2:])
			}
			if len(args) > 1 && strings.HasPrefix(args[1], "-") {
				return fmt.Errorf("flags of exec come before SANDBOX: %s", c.UseLine())
			}
			return between(2, append([]string{"SANDBOX", "COMMAND"}, args...)...)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			r, err := o.request(args[1:])
			if err != nil {
				return err
			}
			if resume {
				if err := a.resumeFirst(c.Context(), args[0]); err != nil {
					return err
				}
			}
			if o.background {
				return a.background(c.Context(), args[0], r)
			}
			return a.exec(c.Context(), args[0], r.ExecRequest)
		}}
	o.flags(c)
	c.Flags().BoolVar(&resume, "resume", false, "let the sandbox go on first if it is paused")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning, workspace.SandboxPaused))
	return c
}

func (a *app) shellCommand() *cobra.Command {
	return &cobra.Command{Use: "shell SANDBOX", Short: "Open a shell in a sandbox", Args: exactly("SANDBOX"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.exec(c.Context(), args[0], runtime.ExecRequest{PTY: true, Stdin: true,
				Argv: []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l || exec sh -l"}})
		}}
}

// executed is what exec prints with --json.
type executed struct {
	runtime.ExecResult
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
}

// exec runs a command and passes its streams, its terminal's size and its exit code.
func (a *app) exec(ctx context.Context, sandbox string, r runtime.ExecRequest) error {
	return a.with(ctx, func(c *client.Client) error {
		t := a.terminal(r.PTY)
		r.Rows, r.Cols = t.size()
		io := client.Streams{Stdout: a.out, Stderr: a.err}
		var bufOut, bufErr bytes.Buffer
		if a.json {
			io.Stdout, io.Stderr = &bufOut, &bufErr
		}
		if r.Stdin {
			io.Stdin = a.in
		}
		stop := t.serve(ctx, c, sandbox, &io)
		res, err := c.Execute(ctx, sandbox, r, io)
		stop()
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(a.out, one{Schema, executed{res, bufOut.Bytes(), bufErr.Bytes()}}); err != nil {
				return err
			}
		}
		return a.ended(res)
	})
}

// ended gives the command's exit code, and says why where it was not the command's own will.
func (a *app) ended(res runtime.ExecResult) error {
	switch r := res.Exit.Reason; {
	case a.json || r == "" || r == "exited" || r == "signal":
	case res.Exit.Code == 127:
		a.say("weft: there is no such command in the sandbox")
	case res.Exit.Code == 126:
		a.say("weft: the command can't be executed")
	default:
		a.say("weft: the command was ended: %s", r)
	}
	if res.Exit.Code != 0 {
		return exitCode(res.Exit.Code)
	}
	return nil
}

// terminal is the person's own terminal, if the command gets one and there is one.
type terminal struct {
	in, out *os.File
}

func (a *app) terminal(pty bool) *terminal {
	t := &terminal{}
	if !pty {
		return t
	}
	if isTerminal(a.in) {
		t.in = a.in.(*os.File)
	}
	if isTerminal(a.out) {
		t.out = a.out.(*os.File)
	}
	return t
}

// size is the terminal's, or the common one.
func (t *terminal) size() (rows, cols uint16) {
	if t.out != nil {
		if w, h, err := term.GetSize(int(t.out.Fd())); err == nil {
			return uint16(h), uint16(w)
		}
	}
	return 24, 80
}

// raw hands every key to the command, Ctrl-C among them. restore may be called twice.
func (t *terminal) raw() (restore func(), err error) {
	if t.in == nil {
		return func() {}, nil
	}
	old, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the terminal can't be made raw")
	}
	return sync.OnceFunc(func() { _ = term.Restore(int(t.in.Fd()), old) }), nil
}

// serve makes the terminal that of the process as soon as it is there, and tells it when the window changes its
// size. stop gives the terminal back.
func (t *terminal) serve(ctx context.Context, c *client.Client, sandbox string, io *client.Streams) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	restore := func() {}
	io.Started = func(p runtime.Process) {
		if !p.PTY {
			return
		}
		if again, err := t.raw(); err == nil {
			restore = again
		}
		following.Go(func() { t.follow(ctx, c, sandbox, p.ID) })
	}
	return func() {
		cancel()
		following.Wait()
		restore()
	}
}

// follow tells the command when the window changes its size.
func (t *terminal) follow(ctx context.Context, c *client.Client, sandbox, process string) {
	if t.out == nil {
		return
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			rows, cols := t.size()
			_ = c.ResizeProcess(ctx, sandbox, process, rows, cols) // the next change says it again
		}
	}
}
