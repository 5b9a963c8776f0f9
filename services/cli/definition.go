package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/workspace"
)

// definition is how the commands about one kind of definition differ.
type definition[T any] struct {
	kind   string // as in a manifest
	header string
	row    func(T) []string
	of     func(*client.Client) client.Definitions[T]
}

// commands makes list, get and delete.
func commands[T any](a *app, d definition[T]) []*cobra.Command {
	word := strings.ToLower(d.kind)
	max := 0
	list := &cobra.Command{Use: "list", Short: "List the " + word + "s", Args: exactly(), RunE: func(c *cobra.Command, _ []string) error {
		return a.with(c.Context(), func(cl *client.Client) error {
			vs, err := d.of(cl).List(c.Context(), max)
			if err != nil {
				return err
			}
			return items(a, vs, d.header, d.row)
		})
	}}
	list.Flags().IntVar(&max, "limit", 0, "at most so many (default all)")
	get := &cobra.Command{Use: "get NAME", Short: "Show one " + word + ", as 'weft apply' takes it", Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		return a.with(c.Context(), func(cl *client.Client) error {
			v, err := d.of(cl).Get(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.item(v, func(w io.Writer) { manifestOf(w, d.kind, args[0], v) })
		})
	}}
	var yes bool
	del := &cobra.Command{Use: "delete NAME", Short: "Delete one " + word, Args: exactly("NAME"), RunE: func(c *cobra.Command, args []string) error {
		return a.definitionDelete(c.Context(), d.kind, args[0], yes, func(ctx context.Context, cl *client.Client) error { return d.of(cl).Delete(ctx, args[0]) })
	}}
	if d.kind == kindWorkspace {
		del.Short += " and everything in it"
		del.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return []*cobra.Command{list, get, del}
}

func (a *app) definitionDelete(ctx context.Context, kind, name string, yes bool, del func(context.Context, *client.Client) error) error {
	if kind == kindWorkspace {
		if err := a.confirm(yes, "Delete the workspace %s with its files, secrets and memory?", name); err != nil {
			return err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deleteTimeout)
		defer cancel()
	}
	return a.with(ctx, func(cl *client.Client) error {
		if err := del(ctx, cl); err != nil {
			return err
		}
		return a.done(workspace.Name{Name: name}, "%s %s deleted", strings.ToLower(kind), name)
	})
}

// manifestOf prints a definition so that it can be edited and applied again.
func manifestOf(w io.Writer, kind, name string, v any) {
	b, err := json.Marshal(v)
	spec := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &spec)
	}
	if err != nil {
		fmt.Fprintln(w, "#", err)
		return
	}
	for _, k := range []string{"name", "version", "created_at", "state"} { // set by the service
		delete(spec, k)
	}
	prune(spec)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	_ = e.Encode(struct {
		Kind string         `yaml:"kind"`
		Name string         `yaml:"name"`
		Spec map[string]any `yaml:"spec"`
	}{kind, name, spec})
	_ = e.Close()
}

// prune drops empty objects, which say nothing, and makes whole numbers integers again.
func prune(m map[string]any) {
	for k, v := range m {
		switch x := v.(type) {
		case map[string]any:
			prune(x)
			if len(x) == 0 {
				delete(m, k)
			}
		case float64:
			if x == float64(int64(x)) {
				m[k] = int64(x)
			}
		case nil:
			delete(m, k)
		}
	}
}

func workspaces() definition[workspace.Workspace] {
	return definition[workspace.Workspace]{kindWorkspace, "name state running disk labels age", func(w workspace.Workspace) []string {
		disk := "default"
		if w.Quota.DiskBytes > 0 {
			disk = size(w.Quota.DiskBytes)
		}
		return []string{w.Name, w.State, limit(w.Quota.MaxRunning), disk, labels(w.Labels), age(w.CreatedAt)}
	}, (*client.Client).Workspaces}
}

func agents() definition[workspace.Agent] {
	return definition[workspace.Agent]{kindAgent, "name version template entrypoint secrets age", func(g workspace.Agent) []string {
		var use []string
		for _, s := range g.Secrets {
			use = append(use, s.Name)
		}
		return []string{g.Name, fmt.Sprint(g.Version), g.Template, clip(strings.Join(g.Entrypoint, " "), 40), strings.Join(use, ","), age(g.CreatedAt)}
	}, (*client.Client).Agents}
}

func templates() definition[workspace.Template] {
	return definition[workspace.Template]{kindTemplate, "name version level isolation image cpu memory age", func(t workspace.Template) []string {
		cpu, memory := "default", "default"
		if t.Resources.CPUMillis > 0 {
			cpu = fmt.Sprintf("%dm", t.Resources.CPUMillis)
		}
		if t.Resources.MemoryBytes > 0 {
			memory = size(t.Resources.MemoryBytes)
		}
		return []string{t.Name, fmt.Sprint(t.Version), t.Level, isolationText(t.Isolation), clip(t.Image, 48), cpu, memory, age(t.CreatedAt)}
	}, (*client.Client).Templates}
}

func triggers() definition[workspace.Trigger] {
	return definition[workspace.Trigger]{kindTrigger, "name version on gather starts age", func(t workspace.Trigger) []string {
		on, gather, starts := "", "", t.Start.Agent
		switch {
		case t.Message != nil:
			on = "message to " + t.Message.To + " from " + strings.Join(t.Message.From, ",")
		case t.Event != nil:
			on = strings.Join(t.Event.Events, ",") + " of " + strings.Join(t.Event.Agents, ",")
		}
		if t.Gather {
			gather = "yes"
		}
		if starts == "" {
			starts = t.Start.Template
		}
		return []string{t.Name, fmt.Sprint(t.Version), on, gather, starts, age(t.CreatedAt)}
	}, (*client.Client).Triggers}
}

func (a *app) agentCommand() *cobra.Command {
	c := parent("agent", groupHave, "Agents: what can be run", commands(a, agents())...)
	c.Long = "Agents are defined in files and made by 'weft apply -f FILE'; every change is a new version.\n'weft agent get NAME' prints one as such a file."
	return c
}

func (a *app) templateCommand() *cobra.Command {
	shared := &cobra.Command{Use: "shared", Short: "List the templates that every tenant has", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.sharedList(c.Context()) }}
	shared.AddCommand(&cobra.Command{Use: "delete NAME", Short: "Delete one of them", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.operate(c.Context(), func(o *client.Operator) error {
				if err := o.DeleteTemplate(c.Context(), args[0]); err != nil {
					return err
				}
				return a.done(workspace.Name{Name: args[0]}, "shared template %s deleted", args[0])
			})
		}})
	t := parent("template", groupHave, "Templates: images with their defaults", append(commands(a, templates()), a.templateCreateCommand(), shared)...)
	t.Long = "A workspace has its own templates, those of its tenant (made with -w -) and those that every tenant has\n(made with 'weft apply --shared', which takes the mesh's keys). The nearer one counts."
	return t
}

func (a *app) sharedList(ctx context.Context) error {
	return a.operate(ctx, func(o *client.Operator) error {
		ts, err := o.Templates(ctx)
		if err != nil {
			return err
		}
		return items(a, ts, templates().header, templates().row)
	})
}

func (a *app) triggerCommand() *cobra.Command {
	return parent("trigger", groupHave, "Triggers: what starts agents", commands(a, triggers())...)
}

func (a *app) workspaceCommand() *cobra.Command {
	var quota workspace.Quota
	var label []string
	create := &cobra.Command{Use: "create NAME", Short: "Make a workspace, or change its quota and labels", Args: exactly("NAME"),
		Example: "  weft workspace create audit --max-running 4",
		RunE: func(c *cobra.Command, args []string) error {
			return a.workspaceCreate(c.Context(), args[0], quota, label)
		}}
	quotaFlags(create, &quota)
	create.Flags().StringArrayVar(&label, "label", nil, "NAME=value, any number of times")
	w := parent("workspace", groupMesh, "Make and delete workspaces", append([]*cobra.Command{create}, commands(a, workspaces())...)...)
	w.Aliases = []string{"ws"}
	return w
}

func (a *app) workspaceCreate(ctx context.Context, name string, quota workspace.Quota, label []string) error {
	ls, err := pairs("label", label)
	if err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		w, err := c.Workspaces().Put(ctx, workspace.Workspace{Name: name, Quota: quota, Labels: ls}, 0)
		if err != nil {
			return err
		}
		return a.done(w, "workspace %s is ready; -w %s works in it", w.Name, w.Name)
	})
}

// labels shows a map as k=v,k=v.
func labels(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}
