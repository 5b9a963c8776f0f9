package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// purpose is something that a person wants to do, and what it takes.
type purpose struct {
	name    string
	aim     string   // completes "everything for …"
	command string   // that a person typed
	stages  []string // in the order in which people see them
	// packages that the purpose itself uses, whatever else is there already.
	packages []string
}

var (
	// toRun has mkfs.ext4 and mount, for workspaces under a hard quota.
	toRun = []string{"e2fsprogs", "mount"}
	// toTest has a C compiler, for the race detector, and Python, which reads the demo's agents.
	toTest = append([]string{"gcc", "libc6-dev", "python3"}, toRun...)
)

var purposes = []purpose{
	{"demo", "the demo", "`make demo`", []string{"packages", "containerd", "runc", "openbao", "base", "python"}, toRun},
	{"bench", "the benchmarks", "`make bench`", []string{"packages", "containerd", "runc", "gvisor", "openbao", "base", "python"}, toRun},
	{"test", "the tests", "`make test`", []string{"packages", "containerd", "runc", "gvisor", "openbao", "base", "python", "debian", "ferretdb"}, toTest},
	{"all", "every make command", "`make setup`", []string{"packages", "containerd", "runc", "gvisor", "openbao", "base", "python", "debian", "ferretdb"}, toTest},
}

func findPurpose(name string) (purpose, error) {
	var names []string
	for _, p := range purposes {
		if p.name == name {
			return p, nil
		}
		names = append(names, p.name)
	}
	return purpose{}, fmt.Errorf("-for %q is unknown; it is one of %s", name, strings.Join(names, ", "))
}

// plan returns the purpose's stages. Its packages are those that the purpose uses and those that
// the stages still to be made are made with: what is there already needs no compiler.
func (p purpose) plan(c catalog, there func(provision.Stage) bool) []provision.Stage {
	needed := slices.Clone(p.packages)
	var stages []provision.Stage
	for _, name := range p.stages[1:] {
		stage := c.stages[name]
		if !there(stage) {
			needed = append(needed, c.madeWith[name]...)
		}
		stages = append(stages, stage)
	}
	slices.Sort(needed)
	return append([]provision.Stage{packagesStage(slices.Compact(needed))}, stages...)
}

// rounded shows a time as people say it.
func rounded(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d min", int(d.Minutes()), int(d.Seconds())%60)
}
