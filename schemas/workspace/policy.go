package workspace

import (
	"fmt"
	"slices"
)

// Policy bounds what a tenant's sandboxes may be. It counts when a template is put and again at every run, so one
// that is narrowed later also holds for templates that are there. Empty it allows the named levels, root inside and a
// writable root, which are safe within the sandbox's own user namespace, and no other runtime or capability.
type Policy struct {
	Levels       []string `json:"levels,omitempty"`        // allowed; empty: all
	RootInside   *bool    `json:"root_inside,omitempty"`   // allowed; absent: yes
	WritableRoot *bool    `json:"writable_root,omitempty"` // allowed; absent: yes
	// Runtimes of containerd that the level custom may name.
	Runtimes []string `json:"runtimes,omitempty"`
	// Capabilities that the level custom may state beyond RootCapabilities, of CustomCapabilities.
	Capabilities []string `json:"capabilities,omitempty"`
}

// Allows says which field of a level goes beyond the policy, nil if none does. A nil policy is the empty one.
func (p *Policy) Allows(level string, i Isolation) error {
	if p == nil {
		p = &Policy{}
	}
	if level == "" {
		level = LevelStandard
	}
	switch {
	case len(p.Levels) > 0 && !slices.Contains(p.Levels, level):
		return fmt.Errorf(`field "level": the tenant may not have %s`, level)
	case i.RootInside && p.RootInside != nil && !*p.RootInside:
		return fmt.Errorf(`field "root_inside": the tenant may not have it`)
	case i.WritableRoot && p.WritableRoot != nil && !*p.WritableRoot:
		return fmt.Errorf(`field "writable_root": the tenant may not have it`)
	case i.Custom == nil:
		return nil
	case i.Custom.Runtime != "" && !slices.Contains(p.Runtimes, i.Custom.Runtime):
		return fmt.Errorf(`field "custom.runtime": the tenant may not have %.80q`, i.Custom.Runtime)
	}
	for _, c := range i.Custom.Capabilities {
		if !slices.Contains(RootCapabilities, c) && !slices.Contains(p.Capabilities, c) {
			return fmt.Errorf(`field "custom.capabilities": the tenant may not have %.40q`, c)
		}
	}
	return nil
}
