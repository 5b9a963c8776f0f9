package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/cli/manifest"
)

// Kinds of definition, as in a manifest.
const (
	kindWorkspace = manifest.Workspace
	kindTemplate  = manifest.Template
	kindAgent     = manifest.Agent
	kindTrigger   = manifest.Trigger
)

// applied is what became of one document, or in a dry run what would.
type applied struct {
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Outcome string   `json:"outcome"` // created, changed, unchanged
	Version int      `json:"version,omitempty"`
	Sandbox string   `json:"sandbox,omitempty"` // of a claim
	Notes   []string `json:"notes,omitempty"`   // fields that have no effect, and why
	Value   any      `json:"value,omitempty"`   // in a dry run: what would be put
}

// outcomes of an applied document.
const (
	outcomeCreated   = "created"
	outcomeChanged   = "changed"
	outcomeUnchanged = "unchanged"
)

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var shared, dry bool
	c := &cobra.Command{Use: "apply -f FILE", Short: "Make or change definitions from files", GroupID: groupRun, Args: exactly(),
		Long: `apply makes or changes what the documents of YAML or JSON files define: Workspace, Template,
Agent, Pool, Trigger. What is as defined already stays; every other change is a new version, and tasks
that were accepted keep theirs. Fields are in snake_case or camelCase, amounts may have units (512MiB,
30s). A misspelt field is an error.

SandboxTemplate, SandboxWarmPool and SandboxClaim of kubernetes-sigs/agent-sandbox mean the same here: a
template, its warm pool, and a sandbox that is found again under the claim's name. Fields that can't be
honoured are refused, each with its path and the reason; those without an effect are named.`,
		Example: `  weft apply -f agents.yaml
  weft apply --dry-run -f sandboxtemplate.yaml
  cat <<EOF | weft apply -f -
  kind: Agent
  name: hello
  spec:
    template: base
    entrypoint: [sh, -c, 'echo hello from $WEFT_TASK']
  EOF`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return fault.New(fault.Invalid, "-f FILE is missing; - is stdin")
			}
			return a.apply(c.Context(), files, shared, dry)
		}}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "`FILE` with definitions, - for stdin; any number of times")
	c.Flags().BoolVar(&shared, "shared", false, "templates and pools for every tenant, which takes the mesh's keys")
	c.Flags().BoolVar(&dry, "dry-run", false, "only show what would be made or changed")
	return c
}

func (a *app) apply(ctx context.Context, files []string, shared, dry bool) error {
	var os []manifest.Object
	for _, f := range files {
		b, err := a.read(f)
		if err != nil {
			return err
		}
		o, err := manifest.Read(b)
		if err != nil {
			return fault.New(fault.Invalid, "%s: %s", f, err)
		}
		os = append(os, o...)
	}
	slices.SortStableFunc(os, func(x, y manifest.Object) int { return manifest.Order(x.Kind) - manifest.Order(y.Kind) })
	p := applier{dry: dry, all: os}
	if shared {
		return a.operate(ctx, func(o *client.Operator) error {
			p.o = o
			return a.applyAll(ctx, &p, p.shared)
		})
	}
	return a.with(ctx, func(c *client.Client) error {
		p.c = c
		return a.applyAll(ctx, &p, p.one)
	})
}

func (a *app) applyAll(ctx context.Context, p *applier, one func(context.Context, manifest.Object) (applied, error)) error {
	out := []applied{}
	for i, o := range p.all {
		r, err := one(ctx, o)
		if err != nil {
			_ = a.appliedList(out, p.dry) // what was done stays done, so it is told
			return fault.Wrap(err, fault.CodeOf(err), "%s %s", strings.ToLower(o.Kind), o.Name)
		}
		r.Kind, r.Name, r.Notes = o.Kind, o.Name, o.Notes
		if p.dry {
			r.Value = p.all[i].Value // which a claim has resolved
		}
		out = append(out, r)
	}
	return a.appliedList(out, p.dry)
}

func (a *app) appliedList(out []applied, dry bool) error {
	if a.json {
		return a.printJSON(a.out, list{Schema, out})
	}
	for i, r := range out {
		for _, n := range r.Notes {
			a.say("%s %s: without effect: %s", strings.ToLower(r.Kind), r.Name, n)
		}
		if dry {
			a.planned(i, r)
			continue
		}
		more := ""
		if r.Version > 0 {
			more = fmt.Sprintf(" (version %d)", r.Version)
		}
		if r.Sandbox != "" {
			more = " (sandbox " + r.Sandbox + ")"
		}
		fmt.Fprintf(a.out, "%s %s %s%s\n", strings.ToLower(r.Kind), r.Name, a.became(r), more)
	}
	return nil
}

func (a *app) became(r applied) string {
	if r.Outcome == outcomeUnchanged {
		return r.Outcome
	}
	return a.paint(green, r.Outcome)
}

// planned shows a document as it would be put, in a form that can be applied itself; a claim as the command that
// makes the same.
func (a *app) planned(i int, r applied) {
	if i > 0 {
		fmt.Fprintln(a.out, "---")
	}
	fmt.Fprintf(a.out, "# %s %s would be %s\n", strings.ToLower(r.Kind), r.Name, a.became(r))
	c, ok := r.Value.(*claimed)
	if !ok {
		manifestOf(a.out, r.Kind, r.Name, r.Value)
		return
	}
	fmt.Fprintf(a.out, "# weft sandbox create --template %s --claim %s --ttl %s --idle %s", c.Template, c.Claim, time.Duration(c.TTLMS)*time.Millisecond, time.Duration(c.IdleMS)*time.Millisecond)
	for _, k := range slices.Sorted(maps.Keys(c.Env)) {
		fmt.Fprintf(a.out, " -e %s=%q", k, c.Env[k])
	}
	fmt.Fprintln(a.out)
}

// strict decodes JSON and refuses fields that are not known: they are misspelt ones.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// applier applies documents to one place.
type applier struct {
	c   *client.Client   // the workspace's,
	o   *client.Operator // or what all tenants share
	dry bool
	all []manifest.Object
}

// shared applies what is for every tenant.
func (p *applier) shared(ctx context.Context, o manifest.Object) (applied, error) {
	if o.Namespace != "" {
		return applied{}, fault.New(fault.Invalid, "metadata.namespace: what all tenants share lies in none; leave it out")
	}
	switch v := o.Value.(type) {
	case *workspace.Template:
		return put(ctx, p.dry, sharedTemplates{p.o}, o.Name, v, func(t *workspace.Template) int { return t.Version })
	case *workspace.Pool:
		return p.pool(ctx, poolPlace{p.o.Pools(), workspace.PoolRef{Tenant: workspace.SystemTenant, Workspace: "-"}}, v)
	}
	return applied{}, fault.New(fault.Invalid, "only templates can be shared by all tenants, and their pools")
}

func (p *applier) one(ctx context.Context, o manifest.Object) (applied, error) {
	if o.Namespace != "" && o.Namespace != p.c.Workspace() {
		return applied{}, fault.New(fault.Invalid, "metadata.namespace: %q is not the workspace %q that this is applied to; say -w %s, or leave it out", o.Namespace, p.c.Workspace(), o.Namespace)
	}
	switch v := o.Value.(type) {
	case *workspace.Workspace:
		return put(ctx, p.dry, p.c.Workspaces(), o.Name, v, func(*workspace.Workspace) int { return 0 })
	case *workspace.Template:
		return put(ctx, p.dry, p.c.Templates(), o.Name, v, func(t *workspace.Template) int { return t.Version })
	case *workspace.Agent:
		return put(ctx, p.dry, p.c.Agents(), o.Name, v, func(g *workspace.Agent) int { return g.Version })
	case *workspace.Pool:
		return p.pool(ctx, poolPlace{p.c.Pools(), workspace.PoolRef{Tenant: p.c.Tenant(), Workspace: p.c.Workspace()}}, v)
	case *workspace.Trigger:
		return put(ctx, p.dry, p.c.Triggers(), o.Name, v, func(t *workspace.Trigger) int { return t.Version })
	case *manifest.SandboxClaim:
		return p.claim(ctx, o.Name, v)
	}
	return applied{}, fault.New(fault.Internal, "there is no way to apply a %s", o.Kind)
}

// definitions is where one kind is read and put.
type definitions[T any] interface {
	Get(ctx context.Context, name string) (T, error)
	Put(ctx context.Context, v T, version int) (T, error)
}

// put applies one definition. Somebody else's change between reading and putting is overwritten, as the
// file says what should be.
func put[T any](ctx context.Context, dry bool, d definitions[T], name string, v *T, version func(*T) int) (applied, error) {
	before, err := d.Get(ctx, name)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return applied{}, err
	}
	exists := err == nil
	after := before
	if !dry {
		if after, err = d.Put(ctx, *v, 0); err != nil {
			return applied{}, err
		}
	}
	r := applied{Outcome: outcomeCreated, Version: version(&after)}
	if exists {
		r.Outcome = outcomeChanged
		if !dry && reflect.DeepEqual(before, after) || dry && sameDefinition(before, *v) {
			r.Outcome = outcomeUnchanged
		}
	}
	return r, nil
}

// sameDefinition compares what people define, not what the service adds.
func sameDefinition(a, b any) bool {
	x, y := definitionMap(a), definitionMap(b)
	return x != nil && reflect.DeepEqual(x, y)
}

// definitionMap is a definition without what the service sets.
func definitionMap(v any) map[string]any {
	b, err := json.Marshal(v)
	m := map[string]any{}
	if err != nil || json.Unmarshal(b, &m) != nil {
		return nil
	}
	for _, k := range []string{"name", "version", "created_at", "state"} {
		delete(m, k)
	}
	prune(m)
	return m
}

// sharedTemplates are the templates of the mesh, as definitions.
type sharedTemplates struct{ o *client.Operator }

func (s sharedTemplates) Get(ctx context.Context, name string) (workspace.Template, error) {
	ts, err := s.o.Templates(ctx)
	if err != nil {
		return workspace.Template{}, err
	}
	for _, t := range ts {
		if t.Name == name {
			return t, nil
		}
	}
	return workspace.Template{}, fault.New(fault.NotFound, "no shared template %q", name)
}

func (s sharedTemplates) Put(ctx context.Context, t workspace.Template, _ int) (workspace.Template, error) {
	return s.o.PutTemplate(ctx, t)
}
