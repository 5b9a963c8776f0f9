// Package manifest reads the files of `weft apply`: YAML or JSON documents, each of which defines one thing.
//
// Weft's own documents have a kind, a name and a spec with the fields of schemas/workspace, in snake_case or
// camelCase; amounts may carry a unit ("512MiB", "30s"). A field that is not known is an error with a hint.
//
// Documents of kubernetes-sigs/agent-sandbox (SandboxTemplate, SandboxWarmPool, SandboxClaim) mean the same here
// as there. A field that Weft can't honour is refused with its path and the reason; one that has no effect here is
// named in a note. None is dropped in silence. deploy/adr/agent-sandbox-manifests.md says how they map.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Kinds of thing, in the order in which they are applied: later ones name earlier ones.
const (
	Workspace = "Workspace"
	Template  = "Template"
	Agent     = "Agent"
	Pool      = "Pool"
	Trigger   = "Trigger"
	Claim     = "Claim"
)

var kinds = []string{Workspace, Template, Agent, Pool, Trigger}

// Order is a kind's place among the kinds.
func Order(kind string) int { return slices.Index(append(slices.Clone(kinds), Claim), kind) }

// Object is what one document asks for.
type Object struct {
	Kind string `json:"kind"` // one of the kinds above
	Name string `json:"name"`
	// Value is a *workspace.Workspace, Template, Agent, Pool, Trigger, or a *SandboxClaim, by its kind.
	Value any `json:"value"`
	// Namespace is that of an agent-sandbox document, which must be the workspace to which it is applied.
	Namespace string `json:"namespace,omitempty"`
	// Notes say which fields have no effect, and why.
	Notes []string `json:"notes,omitempty"`
}

// SandboxClaim asks for an interactive sandbox under its name. Exactly one of Template and Pool is needed; with both
// the pool must be of the template.
type SandboxClaim struct {
	Template string            `json:"template,omitempty"`
	Pool     string            `json:"pool,omitempty"` // by the name that a SandboxWarmPool has
	Env      map[string]string `json:"env,omitempty"`
	TTLMS    int64             `json:"ttl_ms,omitempty"` // 0 is until Until, or as long as one can live
	Until    *time.Time        `json:"until,omitempty"`
}

// Read gives what the documents of a file ask for. Errors name the document and the field.
func Read(b []byte) ([]Object, error) {
	var out []Object
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
		o, err := document(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no definition in it")
	}
	return out, nil
}

// document reads one document. It goes through JSON, so that YAML's own types are all plain ones afterwards.
func document(doc any) (Object, error) {
	j, err := json.Marshal(doc)
	if err != nil {
		return Object{}, err
	}
	d := json.NewDecoder(bytes.NewReader(j))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil || m == nil {
		return Object{}, errors.New("it must be an object with kind, name and spec")
	}
	api, _ := m["apiVersion"].(string)
	if group, version, _ := strings.Cut(api, "/"); strings.HasSuffix(group, "x-k8s.io") {
		return foreign(group, version, m)
	}
	kind, _ := m["kind"].(string)
	if strings.HasPrefix(kind, "Sandbox") {
		return Object{}, fmt.Errorf("kind %q is of agent-sandbox; say so with apiVersion: %s/v1alpha1", kind, group)
	}
	if !slices.Contains(kinds, kind) {
		return Object{}, fmt.Errorf("kind %q is none of %s, nor of agent-sandbox", kind, strings.Join(kinds, ", "))
	}
	return own(kind, m)
}

// own reads a document of Weft's own.
func own(kind string, m map[string]any) (Object, error) {
	o := Object{Kind: kind}
	o.Name, _ = m["name"].(string)
	if o.Name == "" {
		return o, fmt.Errorf("%s without a name", kind)
	}
	wrap := func(err error) error { return fmt.Errorf("%s %s: %w", strings.ToLower(kind), o.Name, err) }
	for k := range m {
		if !slices.Contains([]string{"kind", "name", "spec", "apiVersion"}, k) {
			return o, wrap(unknown("", k, []string{"kind", "name", "spec"}))
		}
	}
	var err error
	switch kind {
	case Workspace:
		o.Value, err = decode(m["spec"], o.Name, func(v *workspace.Workspace) *string { return &v.Name })
	case Template:
		o.Value, err = decode(m["spec"], o.Name, func(v *workspace.Template) *string { return &v.Name })
	case Agent:
		o.Value, err = decode(m["spec"], o.Name, func(v *workspace.Agent) *string { return &v.Name })
	case Pool:
		o.Value, err = decode(m["spec"], o.Name, func(v *workspace.Pool) *string { return &v.Name })
	case Trigger:
		o.Value, err = decode(m["spec"], o.Name, func(v *workspace.Trigger) *string { return &v.Name })
	}
	if err != nil {
		return o, wrap(err)
	}
	return o, nil
}

// group is the API group of agent-sandbox's extensions.
const group = "extensions.agents.x-k8s.io"

// foreign reads a document of agent-sandbox.
func foreign(api, version string, m map[string]any) (Object, error) {
	kind, _ := m["kind"].(string)
	read := map[string]func(*reader, object) Object{
		"SandboxTemplate": sandboxTemplate, "SandboxWarmPool": sandboxWarmPool, "SandboxClaim": sandboxClaim}[kind]
	if api != group || read == nil {
		return Object{}, fmt.Errorf("kind %q of %s is not taken; SandboxTemplate, SandboxWarmPool and SandboxClaim of %s are", kind, api, group)
	}
	if version != "v1alpha1" && version != "v1beta1" {
		return Object{}, fmt.Errorf("apiVersion %s/%s is not known; v1alpha1 and v1beta1 are", api, version)
	}
	r := &reader{}
	root := object{r: r, m: m}
	root.take("apiVersion")
	root.take("kind")
	name, namespace := r.metadata(root.child("metadata"))
	root.ignore("the service writes it", "status")
	o := read(r, root)
	root.done()
	o.Name, o.Namespace, o.Notes = name, namespace, r.said()
	switch v := o.Value.(type) {
	case *workspace.Template:
		v.Name = name
	case *workspace.Pool:
		v.Alias = name
		o.Name = v.Name
	}
	if err := r.err(); err != nil {
		return o, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return o, nil
}

// metadata reads an object's own: its name, and where it is to lie.
func (r *reader) metadata(o object) (name, namespace string) {
	name, namespace = o.text("name"), o.text("namespace")
	if err := schemas.CheckName("name", name); err != nil {
		r.refuse(o.at("name"), "%v", err)
	}
	o.ignore("Weft's definitions have no labels", "labels", "annotations")
	o.ignore("a server writes it", "creationTimestamp", "resourceVersion", "uid", "generation", "managedFields", "selfLink")
	o.forbid("say the name itself, so that applying again finds the same thing", "generateName")
	o.forbid("nothing owns a definition in Weft", "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
	o.done()
	return name, namespace
}
