package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (a *app) portForwardCommand() *cobra.Command {
	address := "127.0.0.1"
	c := &cobra.Command{Use: "port-forward SANDBOX [LOCAL:]REMOTE...", Short: "Reach ports and sockets of a sandbox from this machine",
		Long: `port-forward listens on this machine and carries each connection to a port of the sandbox's loopback interface,
or to a unix socket in it (an absolute path). LOCAL 0 is any free port; without LOCAL it is REMOTE, for a path
any. It goes on until it is interrupted, or the sandbox ends. Traffic counts as use of the sandbox.`,
		Example: "  weft sandbox port-forward $id 8080\n  weft sandbox port-forward $id 0:80 5432:/run/postgres/.s.PGSQL.5432",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.portForward(c.Context(), args[0], address, args[1:])
		}}
	c.Flags().StringVar(&address, "address", address, "`address` of this machine to listen at")
	c.ValidArgsFunction = a.complete(sandboxNames(workspace.SandboxRunning))
	return c
}

// forwarded is one forward, as --json prints it.
type forwarded struct {
	Local  string `json:"local"`
	Remote string `json:"remote"`
}

func (a *app) portForward(ctx context.Context, sandbox, address string, specs []string) error {
	return a.with(ctx, func(c *client.Client) error {
		s, err := c.Sandbox(ctx, sandbox)
		if err != nil {
			return err
		}
		if s.State == workspace.SandboxStopped {
			return fault.New(fault.Unavailable, "sandbox %s has ended; create another one", sandbox)
		}
		var all []forwarded
		var listeners []net.Listener
		defer func() {
			for _, l := range listeners {
				_ = l.Close()
			}
		}()
		for _, spec := range specs {
			l, remote, err := listen(address, spec)
			if err != nil {
				return err
			}
			listeners = append(listeners, l)
			all = append(all, forwarded{l.Addr().String(), remote})
		}
		if a.json {
			err = a.printJSON(a.out, list{Schema, all})
		} else {
			for _, f := range all {
				fmt.Fprintf(a.out, "%s -> %s\n", f.Local, f.Remote)
			}
		}
		if err != nil {
			return err
		}
		return a.forward(ctx, c, sandbox, listeners, all)
	})
}

// listen takes one [LOCAL:]REMOTE.
func listen(address, spec string) (net.Listener, string, error) {
	local, remote, two := strings.Cut(spec, ":")
	if !two {
		if local, remote = spec, spec; strings.HasPrefix(spec, "/") {
			local = "0"
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, local))
	if err != nil {
		return nil, "", fault.Wrap(err, fault.Invalid, "can't listen for %s: %v", spec, err)
	}
	return l, remote, nil
}

// forward carries connections until ctx ends, which is no failure, or the sandbox does.
func (a *app) forward(ctx context.Context, c *client.Client, sandbox string, listeners []net.Listener, all []forwarded) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	})()
	var running sync.WaitGroup
	running.Go(func() { cancel(sandboxEnds(ctx, c, sandbox)) })
	for i, l := range listeners {
		running.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					cancel(err)
					return
				}
				running.Go(func() { a.carry(ctx, c, sandbox, all[i].Remote, conn) })
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// sandboxEnds waits for the sandbox's end.
func sandboxEnds(ctx context.Context, c *client.Client, sandbox string) error {
	look := time.NewTicker(3 * time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		s, err := c.Sandbox(ctx, sandbox)
		switch {
		case fault.Is(err, fault.NotFound):
			return err
		case err == nil && s.State == workspace.SandboxStopped:
			return fault.New(fault.Unavailable, "sandbox %s has ended: %s", sandbox, whyEnded(s))
		}
	}
}

// carry connects one connection with the sandbox.
func (a *app) carry(ctx context.Context, c *client.Client, sandbox, remote string, conn net.Conn) {
	defer conn.Close()
	inside, err := c.DialPort(ctx, sandbox, remote)
	if err != nil {
		if ctx.Err() == nil {
			a.say("weft: %s: %v", remote, err)
		}
		return
	}
	defer inside.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close(); _ = inside.Close() })()
	var both sync.WaitGroup
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if h, ok := to.(interface{ CloseWrite() error }); err != nil || !ok || h.CloseWrite() != nil {
			_ = to.Close()
			_ = from.Close()
		}
	}
	both.Go(func() { half(inside, conn) })
	both.Go(func() { half(conn, inside) })
	both.Wait()
}
