package cli

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// contextRow is a context as it is shown.
type contextRow struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	client.Context
}

func (a *app) contextCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the contexts", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.contextList() }}
	use := &cobra.Command{Use: "use NAME", Short: "Choose the context that commands are about", Args: exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error { return a.contextUse(args[0]) }}
	show := &cobra.Command{Use: "show", Short: "Show the context that commands are about", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.contextShow() }}
	rm := &cobra.Command{Use: "rm NAME", Short: "Forget a context", Args: exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error { return a.contextRemove(args[0]) }}
	var add client.Context
	put := &cobra.Command{Use: "add NAME", Short: "Make or change a context", Args: exactly("NAME"),
		Example: `  weft context add local --data-dir /var/lib/weft
  weft context add prod --url nats://mesh.example.com:4222 --creds ~/alice.creds --tenant acme --principal alice`,
		RunE: func(_ *cobra.Command, args []string) error { return a.contextAdd(args[0], add) }}
	f := put.Flags()
	f.StringVar(&add.URL, "url", "", "`URL` of the mesh")
	f.StringVar(&add.DataDir, "data-dir", "", "data `directory` of a weftd on this machine, whose keys are used")
	f.StringVar(&add.Creds, "creds", "", "credentials `file`, as 'weft tenant creds' writes it")
	f.StringVar(&add.Tenant, "tenant", "default", "tenant")
	f.StringVar(&add.Workspace, "in", "default", "workspace to work in")
	f.StringVar(&add.Principal, "principal", a.self(), "as whom")
	c := parent("context", groupMesh, "Choose which mesh, and as whom", list, use, show, put, rm)
	c.Long = `A context says which mesh commands are about, and as whom they act. They are kept in
$WEFT_CONTEXTS or ~/.config/weft/contexts.json. In a sandbox none is needed: commands act
as the sandbox's agent. --context or $WEFT_CONTEXT name another one for a command.`
	return c
}

func (a *app) contexts() (*client.Contexts, error) {
	return client.LoadContexts(client.ContextsPath(a.env))
}

func (a *app) contextList() error {
	cs, err := a.contexts()
	if err != nil {
		return err
	}
	var rows []contextRow
	for _, n := range cs.Names() {
		rows = append(rows, contextRow{Name: n, Current: n == cs.Current, Context: cs.Contexts[n]})
	}
	return items(a, rows, "name current tenant workspace principal mesh", func(r contextRow) []string {
		current, where := "", r.URL
		if r.Current {
			current = "*"
		}
		if r.DataDir != "" {
			where = r.DataDir
		}
		return []string{r.Name, current, r.Tenant, r.Workspace, r.Principal, where}
	})
}

func (a *app) contextUse(name string) error {
	cs, err := a.contexts()
	if err != nil {
		return err
	}
	c, err := cs.Get(name)
	if err != nil {
		return err
	}
	cs.Current = name
	if err := cs.Save(); err != nil {
		return err
	}
	return a.done(contextRow{Name: name, Current: true, Context: c}, "commands are now about %s: %s as %s", name, c.Tenant+"/"+c.Workspace, c.Principal)
}

func (a *app) contextShow() error {
	c, err := a.current()
	if err != nil {
		return err
	}
	return a.item(c, func(w io.Writer) {
		fields(w, "tenant", c.Tenant, "workspace", c.Workspace, "principal", c.Principal, "url", c.URL, "data directory", c.DataDir, "credentials", c.Creds)
	})
}

func (a *app) contextAdd(name string, c client.Context) error {
	if err := schemas.CheckName("context", name); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	for _, p := range []*string{&c.DataDir, &c.Creds} {
		if *p != "" {
			abs, err := filepath.Abs(*p)
			if err != nil {
				return err
			}
			*p = abs
		}
	}
	if err := c.Check(); err != nil {
		return err
	}
	if c.Creds != "" {
		if _, err := os.Stat(c.Creds); err != nil {
			return fault.Wrap(err, fault.NotFound, "the credentials file can't be read")
		}
	}
	return a.saveContext(name, c, false)
}

// saveContext keeps a context, and makes it the current one if there is none or use is set.
func (a *app) saveContext(name string, c client.Context, use bool) error {
	cs, err := a.contexts()
	if err != nil {
		return err
	}
	cs.Contexts[name] = c
	if use || cs.Current == "" {
		cs.Current = name
	}
	if err := cs.Save(); err != nil {
		return err
	}
	if use {
		return nil
	}
	return a.done(contextRow{Name: name, Current: cs.Current == name, Context: c}, "context %s saved", name)
}

func (a *app) contextRemove(name string) error {
	cs, err := a.contexts()
	if err != nil {
		return err
	}
	c, err := cs.Get(name)
	if err != nil {
		return err
	}
	delete(cs.Contexts, name)
	if cs.Current == name {
		cs.Current = ""
	}
	if err := cs.Save(); err != nil {
		return err
	}
	return a.done(contextRow{Name: name, Context: c}, "context %s forgotten", name)
}
