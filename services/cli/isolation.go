package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// isolationOf names all that is enforced on a sandbox, for fields.
func isolationOf(i *runtime.Isolation) []string {
	if i == nil {
		return nil
	}
	list := func(s []string) string { return strings.Join(s, " ") }
	var memory, limits []string
	for _, t := range i.Tmpfs {
		memory = append(memory, t.Path+"="+size(t.Bytes))
	}
	for _, r := range i.Rlimits {
		limits = append(limits, fmt.Sprintf("%s=%d", r.Name, r.Hard))
	}
	l := i.Limits
	io := "no bound"
	if l.IOReadBPS > 0 || l.IOWriteBPS > 0 {
		io = fmt.Sprintf("read %s/s, write %s/s", bound(l.IOReadBPS), bound(l.IOWriteBPS))
	}
	return []string{"runtime", i.Runtime, "ids", fmt.Sprintf("%d to %d on the node", i.FirstID, uint64(i.FirstID)+uint64(i.IDs)-1), "user", fmt.Sprint(i.User),
		"root inside", yes(i.RootInside), "writable root", yes(i.WritableRoot), "no new privileges", yes(i.NoNewPrivileges),
		"capabilities", first(list(i.Capabilities), "none"), "of process 1", list(i.SupervisorCapabilities), "seccomp", i.Seccomp,
		"masked", list(i.Masked), "read-only", list(i.ReadOnly), "in memory", list(memory), "rlimits", list(limits),
		"limits", fmt.Sprintf("cpu %dm weight %d, memory %s, %d processes, disk %s", l.CPUMillis, l.CPUWeight, size(l.MemoryBytes), l.PIDs, size(l.DiskBytes)),
		"io", io, "not enforced", list(i.NotEnforced), "namespaces", list(i.Namespaces), "network", i.Network}
}

func bound(n int64) string {
	if n == 0 {
		return "no bound"
	}
	return size(n)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func first(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// isolationText is what a template states beyond its level, in one cell.
func isolationText(i workspace.Isolation) string {
	var out []string
	if i.RootInside {
		out = append(out, "root")
	}
	if i.WritableRoot {
		out = append(out, "writable")
	}
	if i.Seccomp != "" {
		out = append(out, i.Seccomp)
	}
	return strings.Join(out, ",")
}

// templateCreateCommand makes a template without a file.
func (a *app) templateCreateCommand() *cobra.Command {
	var t workspace.Template
	r := &t.Resources
	c := &cobra.Command{Use: "create NAME --image IMAGE", Short: "Make a template, or its next version; 'weft apply' takes what flags can't say", Args: exactly("NAME"),
		Example: "  weft template create tools --image python --root-inside --writable-root --disk 4GiB",
		RunE: func(c *cobra.Command, args []string) error {
			t.Name = args[0]
			return a.with(c.Context(), func(cl *client.Client) error {
				t, err := cl.Templates().Put(c.Context(), t, 0)
				if err != nil {
					return err
				}
				return a.done(t, "template %s is ready (version %d)", t.Name, t.Version)
			})
		}}
	f := c.Flags()
	f.StringVar(&t.Image, "image", "", "the name of an archive on the nodes, or a reference to a registry that their operator lets them pull from")
	f.StringVar(&t.Level, "level", "", "security level: standard (default), or high for gVisor")
	f.StringVar(&t.Seccomp, "seccomp", "", "profile of system calls: base (default), python or node")
	f.BoolVar(&t.RootInside, "root-inside", false, "commands run as uid 0 of the sandbox's own ids, so that apt and sudo work")
	f.BoolVar(&t.WritableRoot, "writable-root", false, "the root file system can be written, as much as --disk")
	f.Var((*bytesValue)(&r.DiskBytes), "disk", "what a sandbox may write, as 4GiB")
	f.Var((*bytesValue)(&r.MemoryBytes), "memory", "what it may hold in memory, as 512MiB")
	f.Int64Var(&r.CPUMillis, "cpu-millis", 0, "CPU time, in thousandths of a core")
	f.Int64Var(&r.CPUWeight, "cpu-weight", 0, "its share of a busy machine, 1 to 10000 (default 100)")
	f.Int64Var(&r.PIDs, "pids", 0, "processes and threads at once")
	f.Int64Var(&r.OpenFiles, "open-files", 0, "files that each process may have open")
	_ = c.MarkFlagRequired("image")
	return c
}

// tenantPolicyCommand shows a tenant's policy, or replaces it.
func (a *app) tenantPolicyCommand() *cobra.Command {
	var p workspace.Policy
	var root, writable bool
	c := &cobra.Command{Use: "policy TENANT", Short: "Show or set what a tenant's sandboxes may be", Args: exactly("TENANT"),
		Example: "  weft tenant policy acme --levels high --root-inside=false\n  weft tenant policy acme --runtime io.containerd.kata.v2",
		RunE: func(c *cobra.Command, args []string) error {
			set := false
			for _, name := range []string{"levels", "root-inside", "writable-root", "runtime", "capability", "default"} {
				set = set || c.Flags().Changed(name)
			}
			if c.Flags().Changed("root-inside") {
				p.RootInside = &root
			}
			if c.Flags().Changed("writable-root") {
				p.WritableRoot = &writable
			}
			return a.tenantPolicy(c.Context(), args[0], &p, set)
		}}
	c.Long = "Without flags it is shown. With flags it is replaced as a whole: what no flag says is as by default. It counts for\nnew templates and for every run, also of templates that are there already."
	f := c.Flags()
	f.StringSliceVar(&p.Levels, "levels", nil, "levels that it may have: standard, high, custom (default all)")
	f.BoolVar(&root, "root-inside", true, "its templates may let commands be uid 0 inside")
	f.BoolVar(&writable, "writable-root", true, "its templates may have a writable root")
	f.StringArrayVar(&p.Runtimes, "runtime", nil, "containerd `runtime` that level custom may name, any number of times (default none)")
	f.StringArrayVar(&p.Capabilities, "capability", nil, "`capability` that level custom may have beyond those of root inside (default none)")
	f.Bool("default", false, "set it back to the default")
	return c
}

func (a *app) tenantPolicy(ctx context.Context, name string, p *workspace.Policy, set bool) error {
	return a.operate(ctx, func(o *client.Operator) error {
		ts, err := o.Tenants(ctx)
		if err != nil {
			return err
		}
		for _, t := range ts {
			if t.Name != name {
				continue
			}
			if !set {
				return a.item(first0(t.Policy), func(w io.Writer) { policyOf(w, first0(t.Policy)) })
			}
			t, err := o.CreateTenant(ctx, workspace.Tenant{Name: name, Policy: p})
			if err != nil {
				return err
			}
			return a.done(t, "the policy of tenant %s is set; it counts from the next run on", t.Name)
		}
		return fault.New(fault.NotFound, "no tenant %q; 'weft tenant list' shows them", name)
	})
}

func first0(p *workspace.Policy) workspace.Policy {
	if p == nil {
		return workspace.Policy{}
	}
	return *p
}

func policyOf(w io.Writer, p workspace.Policy) {
	allowed := func(b *bool) string { return yes(b == nil || *b) }
	fields(w, "levels", first(strings.Join(p.Levels, " "), "all"), "root inside", allowed(p.RootInside), "writable root", allowed(p.WritableRoot),
		"runtimes", first(strings.Join(p.Runtimes, " "), "none"), "capabilities", first(strings.Join(p.Capabilities, " "), "none"))
}
