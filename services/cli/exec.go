package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
)

func (a *app) execCommand() *cobra.Command {
	var r runtime.ExecRequest
	var env []string
	var timeout time.Duration
	c := &cobra.Command{Use: "exec [flags] SANDBOX [--] COMMAND [ARG...]", Short: "Run a command in a sandbox and exit with its code",
		Example: "  weft sandbox exec $id -- ls -l /workspace\n  tar c src | weft sandbox exec -i $id -- tar x -C /workspace",
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
			var err error
			if r.Env, err = pairs("env", env); err != nil {
				return err
			}
			if r.Argv = args[1:]; r.Argv[0] == "--" {
				r.Argv = r.Argv[1:]
			}
			r.TimeoutMS = timeout.Milliseconds()
			return a.exec(c.Context(), args[0], r)
		}}
	f := c.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&r.Stdin, "stdin", "i", false, "pass stdin to the command")
	f.BoolVarP(&r.PTY, "tty", "t", false, "give it a terminal")
	f.StringArrayVarP(&env, "env", "e", nil, "`NAME=value` in its environment")
	f.StringVar(&r.Workdir, "workdir", "", "`directory` to run it in")
	f.DurationVar(&timeout, "timeout", 0, "end it after so long")
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
		s, err := c.Exec(ctx, sandbox, r)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		restore, err := t.raw()
		if err != nil {
			return err
		}
		defer restore()
		out, errs := a.out, a.err
		var bufOut, bufErr bytes.Buffer
		if a.json {
			out, errs = &bufOut, &bufErr
		}
		res, err := pass(ctx, s, t, r.Stdin, a.in, out, errs)
		restore()
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

// pass copies the streams both ways until the command has ended.
func pass(ctx context.Context, s *stream.Session, t *terminal, stdin bool, in io.Reader, out, errs io.Writer) (runtime.ExecResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if stdin {
		go func() { // ends with stdin, or with the program: a read of a terminal can't be taken back
			_, _ = io.Copy(s.Channel(stream.Stdin), in)
			_ = s.Channel(stream.Stdin).CloseWrite()
		}()
	} else {
		_ = s.Channel(stream.Stdin).CloseWrite()
	}
	var wg sync.WaitGroup
	wg.Go(func() { t.follow(ctx, s) })
	var errOut, errErr error
	var copies sync.WaitGroup
	copies.Go(func() { _, errOut = io.Copy(out, s.Channel(stream.Stdout)) })
	copies.Go(func() { _, errErr = io.Copy(errs, s.Channel(stream.Stderr)) })
	copies.Wait()
	var res runtime.ExecResult
	err := s.Result(ctx, &res)
	if err == nil {
		err = errors.Join(errOut, errErr)
	}
	cancel()
	wg.Wait()
	return res, err
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

// follow tells the command when the window changes its size.
func (t *terminal) follow(ctx context.Context, s *stream.Session) {
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
			if s.Send(stream.Resize, runtime.ResizeRequest{Rows: rows, Cols: cols}) != nil {
				return
			}
		}
	}
}
