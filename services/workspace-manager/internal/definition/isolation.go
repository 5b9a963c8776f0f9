package definition

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/weftmesh/weft/schemas/workspace"
)

var seccomps = []string{workspace.SeccompBase, workspace.SeccompPython, workspace.SeccompNode}

// runtimeName is how containerd's runtimes are named, as io.containerd.kata.v2.
var runtimeName = regexp.MustCompile(`^[a-z0-9]+(\.[a-z0-9-]+){2,5}$`)

// maxPaths bounds what a level states.
const maxPaths = 64

// isolation checks what a template states beyond the name of its level.
func isolation(level string, i workspace.Isolation) error {
	if i.Seccomp != "" && !slices.Contains(seccomps, i.Seccomp) {
		return fmt.Errorf(`field "seccomp" must be one of %s`, strings.Join(seccomps, ", "))
	}
	if (level == workspace.LevelCustom) != (i.Custom != nil) {
		return fmt.Errorf(`field "custom" states the level custom, and is there for no other`)
	}
	if i.Custom == nil {
		return nil
	}
	c := i.Custom
	if c.Runtime != "" && (len(c.Runtime) > 128 || !runtimeName.MatchString(c.Runtime)) {
		return fmt.Errorf(`field "custom.runtime" must be a containerd runtime's name, as io.containerd.kata.v2`)
	}
	for field, paths := range map[string][]string{"masked": c.Masked, "read_only": c.ReadOnly} {
		if len(paths) > maxPaths {
			return fmt.Errorf(`field "custom.%s" names %d paths, more than %d`, field, len(paths), maxPaths)
		}
		for _, p := range paths {
			if !path.IsAbs(p) || path.Clean(p) != p || len(p) > 1024 || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || ours(p) {
				return fmt.Errorf(`field "custom.%s": %.80q must be an absolute, clean path, and not what the sandbox itself works with`, field, p)
			}
		}
	}
	for field, n := range map[string]int64{"tmp_bytes": c.Tmp, "home_bytes": c.Home, "shm_bytes": c.Shm} {
		if n < 0 || n > 0 && n < 64<<10 || n > 1<<40 {
			return fmt.Errorf(`field "custom.%s" must be 64 KiB to 1 TiB, or 0 for the default`, field)
		}
	}
	return capabilities(i)
}

// ours reports whether the sandbox would not work, or not be as safe, without path.
func ours(p string) bool {
	for _, o := range []string{"/.weft", "/workspace", "/run", "/dev"} {
		if p == o || strings.HasPrefix(p, o+"/") {
			return true
		}
	}
	return p == "/" || p == "/proc" || p == "/proc/self" || p == "/proc/1"
}

func capabilities(i workspace.Isolation) error {
	if len(i.Custom.Capabilities) > 0 && !i.RootInside {
		return fmt.Errorf(`field "custom.capabilities" needs "root_inside"`)
	}
	for n, c := range i.Custom.Capabilities {
		if !slices.Contains(workspace.RootCapabilities, c) && !slices.Contains(workspace.CustomCapabilities, c) {
			return fmt.Errorf(`field "custom.capabilities": %.40q is none of %s, %s`, c,
				strings.Join(workspace.RootCapabilities, ", "), strings.Join(workspace.CustomCapabilities, ", "))
		}
		if slices.Contains(i.Custom.Capabilities[:n], c) {
			return fmt.Errorf(`field "custom.capabilities" names %s twice`, c)
		}
	}
	return nil
}

// policy checks what bounds a tenant's sandboxes.
func policy(p *workspace.Policy) error {
	if p == nil {
		return nil
	}
	for _, l := range p.Levels {
		if !slices.Contains(levels, l) {
			return fmt.Errorf(`field "policy.levels": %.40q is none of %s`, l, strings.Join(levels, ", "))
		}
	}
	for _, r := range p.Runtimes {
		if len(r) > 128 || !runtimeName.MatchString(r) {
			return fmt.Errorf(`field "policy.runtimes": %.40q is no containerd runtime's name, as io.containerd.kata.v2`, r)
		}
	}
	for _, c := range p.Capabilities {
		if !slices.Contains(workspace.CustomCapabilities, c) {
			return fmt.Errorf(`field "policy.capabilities": %.40q is none of %s`, c, strings.Join(workspace.CustomCapabilities, ", "))
		}
	}
	return nil
}
