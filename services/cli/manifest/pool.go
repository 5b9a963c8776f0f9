package manifest

import (
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// maxPool is how many members a pool may have on a node.
const maxPool = 1000

// sandboxWarmPool reads a SandboxWarmPool as the pool of its template.
func sandboxWarmPool(r *reader, root object) Object {
	spec := root.child("spec")
	n, given := spec.number("replicas")
	if !given {
		n = 1
	}
	if n < 0 || n > maxPool {
		r.refuse(spec.at("replicas"), "it must be 0 to %d", maxPool)
	}
	p := &workspace.Pool{Min: int(n), Max: int(max(n, 1))}
	p.Name = reference(r, spec, "sandboxTemplateRef", true)
	r.note(spec.at("replicas"), "they are kept on each node")
	if n == 0 {
		r.note(spec.at("replicas"), "none is kept; with demand one is")
	}
	u := spec.child("updateStrategy")
	switch s := u.text("type"); s {
	case "", "Recreate":
	case "OnReplenish":
		r.note(u.at("type"), "members of an older template are replaced at once all the same")
	default:
		r.refuse(u.at("type"), "%q is not known; Recreate and OnReplenish are", clip(s))
	}
	u.done()
	spec.forbid("this is an older form; name a template with sandboxTemplateRef", "podTemplate", "strategy")
	spec.done()
	return Object{Kind: Pool, Value: p}
}

// reference gives the name in a field as sandboxTemplateRef.
func reference(r *reader, spec object, key string, needed bool) string {
	ref := spec.child(key)
	if ref.m == nil && !needed {
		return ""
	}
	name := ref.text("name")
	if err := schemas.CheckName("name", name); err != nil {
		r.refuse(ref.at("name"), "%v", err)
	}
	ref.done()
	return name
}
