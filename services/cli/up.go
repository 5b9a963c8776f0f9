package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
)

// stopTimeout is how long weftd may take to stop what it runs.
const stopTimeout = 60 * time.Second

// readyMark begins the line with which weftd says that every part serves; the rest is weftd.json.
const readyMark = "weftd is ready: "

type upOptions struct {
	dataDir, context string
	args             []string
}

func (a *app) upCommand() *cobra.Command {
	var o upOptions
	c := &cobra.Command{Use: "up [-- WEFTD FLAGS]", Short: "Run a mesh on this machine, until Ctrl-C", GroupID: groupMesh,
		Long: `up runs weftd in the foreground with everything embedded, and makes a context for it, so that weft
works from another terminal at once. What the mesh holds stays in the data directory, and the
sandboxes that run when it is stopped are found again.`,
		Example: "  weft up\n  weft up --data-dir ./mesh -- -log-level debug",
		Args: func(c *cobra.Command, args []string) error {
			if d := c.ArgsLenAtDash(); d != 0 && len(args) > 0 {
				return fmt.Errorf("weftd's own flags come after --; see '%s --help'", c.CommandPath())
			}
			o.args = args
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return a.up(c.Context(), o) }}
	c.Flags().StringVar(&o.dataDir, "data-dir", "/var/lib/weft", "`directory` of all state ($WEFT_DATA_DIR)")
	c.Flags().StringVar(&o.context, "name", "local", "`name` of the context to make")
	return c
}

func (a *app) up(ctx context.Context, o upOptions) error {
	if d := a.env("WEFT_DATA_DIR"); d != "" && o.dataDir == "/var/lib/weft" {
		o.dataDir = d
	}
	var err error
	if o.dataDir, err = filepath.Abs(o.dataDir); err != nil {
		return err
	}
	bin, err := a.daemon()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"-data-dir", o.dataDir}, o.args...)...)
	cmd.Env, cmd.Stderr = a.environ, a.err
	watch := &readyWatch{out: a.out, ready: func(d client.Daemon) { a.ready(o, d) }}
	cmd.Stdout = watch
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it through us, once
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	err = cmd.Run()
	var x *exec.ExitError
	switch {
	case errors.As(err, &x) && ctx.Err() == nil:
		return exitCode(max(x.ExitCode(), ExitFailed)) // it has said why
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.As(err, &x)):
		return nil
	}
	return err
}

// daemon finds weftd: named by $WEFT_WEFTD_BIN, beside this program, or on PATH.
func (a *app) daemon() (string, error) {
	if p := a.env("WEFT_WEFTD_BIN"); p != "" {
		return p, nil
	}
	if self, err := os.Executable(); err == nil {
		if p := filepath.Join(filepath.Dir(self), "weftd"); executable(p) {
			return p, nil
		}
	}
	if p, err := exec.LookPath("weftd"); err == nil {
		return p, nil
	}
	return "", fault.New(fault.NotFound, "there is no weftd beside weft or on PATH; 'make build' builds both, $WEFT_WEFTD_BIN names one elsewhere")
}

func executable(p string) bool {
	i, err := os.Stat(p)
	return err == nil && i.Mode().IsRegular() && i.Mode().Perm()&0o111 != 0
}

// ready makes the context and tells a person what to try.
func (a *app) ready(o upOptions, d client.Daemon) {
	tenant := d.Tenant
	if tenant == "" {
		a.say("the mesh is ready at %s; 'weft tenant create NAME' makes its first tenant", d.URL)
		return
	}
	err := a.saveContext(o.context, client.Context{URL: d.URL, DataDir: o.dataDir, Tenant: tenant, Workspace: "default", Principal: a.self()}, true)
	if err != nil {
		a.say("weft: the context %s is not saved: %v", o.context, err)
	}
	a.say(`the mesh is ready at %s. In another terminal:

  weft check                                      is every part well?
  weft run --template base -- echo hello          run something in a sandbox
  weft sandbox shell $(weft sandbox create)       look around in one
  weft events                                     watch everything that happens
  weft task list                                  what ran, and how it ended

Ctrl-C stops it; what it holds stays in %s.`, d.URL, o.dataDir)
}

// readyWatch passes weftd's stdout on and calls ready once.
type readyWatch struct {
	out   io.Writer
	ready func(client.Daemon)
	once  sync.Once
	part  []byte
}

func (r *readyWatch) Write(p []byte) (int, error) {
	r.part = append(r.part, p...)
	for {
		line, rest, ok := bytes.Cut(r.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		r.part = rest
		if b, ok := bytes.CutPrefix(line, []byte(readyMark)); ok {
			var d client.Daemon
			if json.Unmarshal(b, &d) == nil {
				r.once.Do(func() { r.ready(d) })
				continue
			}
		}
		if _, err := fmt.Fprintf(r.out, "%s\n", line); err != nil {
			return 0, err
		}
	}
}
