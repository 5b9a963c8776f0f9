package cli

import (
	"context"
	"os/user"
	"regexp"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// dialTimeout bounds the wait for a mesh to answer.
const dialTimeout = 5 * time.Second

// current gives the context that this invocation is about: the one named, the sandbox's own, or the
// chosen one. --workspace changes its workspace.
func (a *app) current() (client.Context, error) {
	name := a.context
	if name == "" {
		name = a.env("WEFT_CONTEXT")
	}
	c, inside := client.SandboxContext(a.env)
	if name != "" || !inside {
		cs, err := client.LoadContexts(client.ContextsPath(a.env))
		if err != nil {
			return c, err
		}
		if c, err = cs.Get(name); err != nil {
			return c, err
		}
		if w := a.env("WEFT_WORKSPACE"); w != "" {
			c.Workspace = w
		}
	}
	if a.workspace != "" {
		c.Workspace = a.workspace
	}
	return c, c.Check()
}

// client connects. Close it.
func (a *app) client(ctx context.Context) (*client.Client, error) {
	c, err := a.current()
	if err != nil {
		return nil, err
	}
	a.dataDir = c.DataDir
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return client.Dial(ctx, c)
}

// with connects, calls f and closes.
func (a *app) with(ctx context.Context, f func(*client.Client) error) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// operate is with for the operator.
func (a *app) operate(ctx context.Context, f func(*client.Operator) error) error {
	c, err := a.current()
	if err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	o, err := client.DialOperator(dial, c)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(o)
}

var notLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// self is the name of the person at this machine as a principal.
func (a *app) self() string {
	name := a.env("USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	name = strings.Trim(notLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if schemas.CheckName("principal", name) != nil || schemas.Reserved(name) {
		return "me"
	}
	return name
}

// needWorkspace refuses what makes sense in one workspace only.
func needWorkspace(c *client.Client) error {
	if c.Workspace() == schemas.NoWorkspace {
		return fault.New(fault.Invalid, "this is about one workspace; name it with --workspace")
	}
	return nil
}
