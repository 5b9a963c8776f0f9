package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Kinds of manifest, in the order in which they are applied: later ones name earlier ones.
const (
	kindWorkspace = "Workspace"
	kindTemplate  = "Template"
	kindAgent     = "Agent"
	kindTrigger   = "Trigger"
)

var kinds = []string{kindWorkspace, kindTemplate, kindAgent, kindTrigger}

// applied is what became of one manifest.
type applied struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // created, changed, unchanged
	Version int    `json:"version,omitempty"`
}

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var shared bool
	c := &cobra.Command{Use: "apply -f FILE", Short: "Make or change definitions from files", GroupID: groupRun, Args: exactly(),
		Long: `apply makes or changes what the documents of YAML or JSON files define: Workspace, Template,
Agent, Trigger. What is as defined already stays; every other change is a new version, and tasks
that were accepted keep theirs. A misspelt field is an error.`,
		Example: `  weft apply -f agents.yaml
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
			return a.apply(c.Context(), files, shared)
		}}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "`FILE` with definitions, - for stdin; any number of times")
	c.Flags().BoolVar(&shared, "shared", false, "templates for every tenant, which takes the mesh's keys")
	return c
}

func (a *app) apply(ctx context.Context, files []string, shared bool) error {
	var ms []workspace.Manifest
	for _, f := range files {
		b, err := a.read(f)
		if err != nil {
			return err
		}
		m, err := manifests(b)
		if err != nil {
			return fault.New(fault.Invalid, "%s: %s", f, err)
		}
		ms = append(ms, m...)
	}
	slices.SortStableFunc(ms, func(x, y workspace.Manifest) int {
		return slices.Index(kinds, x.Kind) - slices.Index(kinds, y.Kind)
	})
	if shared {
		return a.operate(ctx, func(o *client.Operator) error {
			return a.applyAll(ms, func(m workspace.Manifest) (applied, error) { return applyShared(ctx, o, m) })
		})
	}
	return a.with(ctx, func(c *client.Client) error {
		return a.applyAll(ms, func(m workspace.Manifest) (applied, error) { return applyOne(ctx, c, m) })
	})
}

func (a *app) applyAll(ms []workspace.Manifest, one func(workspace.Manifest) (applied, error)) error {
	out := []applied{}
	for _, m := range ms {
		r, err := one(m)
		if err != nil {
			_ = a.appliedList(out) // what was done stays done, so it is told
			return fault.Wrap(err, fault.CodeOf(err), "%s %s", strings.ToLower(m.Kind), m.Name)
		}
		out = append(out, r)
	}
	return a.appliedList(out)
}

// applyShared applies a template for every tenant.
func applyShared(ctx context.Context, o *client.Operator, m workspace.Manifest) (applied, error) {
	if m.Kind != kindTemplate {
		return applied{}, fault.New(fault.Invalid, "only templates can be shared by all tenants")
	}
	return put(ctx, sharedTemplates{o}, m, func(t *workspace.Template) (*string, int) { return &t.Name, t.Version })
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

// definitions is where one kind is read and put.
type definitions[T any] interface {
	Get(ctx context.Context, name string) (T, error)
	Put(ctx context.Context, v T, version int) (T, error)
}

func (a *app) appliedList(out []applied) error {
	if a.json {
		return a.printJSON(a.out, list{Schema, out})
	}
	for _, r := range out {
		version := ""
		if r.Version > 0 {
			version = fmt.Sprintf(" (version %d)", r.Version)
		}
		outcome := r.Outcome
		if outcome != "unchanged" {
			outcome = a.paint(green, outcome)
		}
		fmt.Fprintf(a.out, "%s %s %s%s\n", strings.ToLower(r.Kind), r.Name, outcome, version)
	}
	return nil
}

// manifests reads the documents of a file. JSON is YAML, too.
func manifests(b []byte) ([]workspace.Manifest, error) {
	var out []workspace.Manifest
	d := yaml.NewDecoder(bytes.NewReader(b))
	for n := 1; ; n++ {
		var doc any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if doc == nil {
			continue
		}
		j, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		var m workspace.Manifest
		if err := strict(j, &m); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if !slices.Contains(kinds, m.Kind) {
			return nil, fmt.Errorf("document %d: kind %q is none of %s", n, m.Kind, strings.Join(kinds, ", "))
		}
		if m.Name == "" {
			return nil, fmt.Errorf("document %d: %s without a name", n, m.Kind)
		}
		if len(m.Spec) == 0 || string(m.Spec) == "null" {
			m.Spec = json.RawMessage("{}")
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no definition in it")
	}
	return out, nil
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

func applyOne(ctx context.Context, c *client.Client, m workspace.Manifest) (applied, error) {
	switch m.Kind {
	case kindWorkspace:
		return put(ctx, c.Workspaces(), m, func(w *workspace.Workspace) (*string, int) { return &w.Name, 0 })
	case kindTemplate:
		return put(ctx, c.Templates(), m, func(t *workspace.Template) (*string, int) { return &t.Name, t.Version })
	case kindAgent:
		return put(ctx, c.Agents(), m, func(g *workspace.Agent) (*string, int) { return &g.Name, g.Version })
	}
	return put(ctx, c.Triggers(), m, func(t *workspace.Trigger) (*string, int) { return &t.Name, t.Version })
}

// put applies one definition. Somebody else's change between reading and putting is overwritten, as the
// file says what should be.
func put[T any](ctx context.Context, d definitions[T], m workspace.Manifest, meta func(*T) (*string, int)) (applied, error) {
	var v T
	if err := strict(m.Spec, &v); err != nil {
		return applied{}, fault.New(fault.Invalid, "spec: %v", err)
	}
	if name, _ := meta(&v); *name != "" && *name != m.Name {
		return applied{}, fault.New(fault.Invalid, "its spec has another name, %q", *name)
	} else {
		*name = m.Name
	}
	before, err := d.Get(ctx, m.Name)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return applied{}, err
	}
	exists := err == nil
	after, err := d.Put(ctx, v, 0)
	if err != nil {
		return applied{}, err
	}
	_, version := meta(&after)
	r := applied{Kind: m.Kind, Name: m.Name, Outcome: "created", Version: version}
	if exists {
		r.Outcome = "changed"
		if reflect.DeepEqual(before, after) {
			r.Outcome = "unchanged"
		}
	}
	return r, nil
}
