package containerd

import (
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/weftmesh/weft/pkg/fault"
)

// CheckRegistry refuses what names no registry, nor a part of one: host, host:port, or either with the beginning of a
// path, all in whole elements.
func CheckRegistry(name string) error {
	host, _, _ := strings.Cut(name, "/")
	named, err := reference.ParseNamed(name + "/x")
	if err != nil || reference.Domain(named) != host || reference.Domain(named)+"/"+reference.Path(named) != name+"/x" {
		return fault.New(fault.Invalid, "%q names no registry; write example.com, example.com:5000 or example.com/team, without https://", clip(name))
	}
	return nil
}

// mayPull refuses references, in their whole form, to registries that this node is not told to pull from. Otherwise whoever writes a
// template would choose with whom the node speaks.
func (e *Engine) mayPull(ref string) error {
	named, err := reference.ParseNamed(ref)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "image %q is no whole reference", clip(ref))
	}
	whole := named.Name()
	if slices.ContainsFunc(e.cfg.Registries, func(r string) bool { return strings.HasPrefix(whole, r+"/") }) {
		return nil
	}
	return fault.New(fault.Denied, "image %s is not on this node, which may not pull from %s; put an OCI archive into an image directory, "+
		"or let the node's operator name the registry with weftd's -registries", clip(ref), reference.Domain(named))
}
