package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Waiting for a pool to fill.
const (
	poolWait = 5 * time.Minute
	poolLook = 250 * time.Millisecond
)

// poolPlace is where the pools are that a command is about.
type poolPlace struct {
	client.Pools
	ref workspace.PoolRef // without a name
}

func (a *app) poolCommand() *cobra.Command {
	shared := false
	list := &cobra.Command{Use: "list", Short: "List the pools with what they hold", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.poolList(c.Context(), shared) }}
	get := &cobra.Command{Use: "get POOL", Short: "Show one pool, node by node", Args: exactly("POOL"),
		RunE: func(c *cobra.Command, args []string) error { return a.poolGet(c.Context(), shared, args[0]) }}
	del := &cobra.Command{Use: "delete POOL", Short: "Delete a pool; sandboxes in use stay", Args: exactly("POOL"),
		RunE: func(c *cobra.Command, args []string) error { return a.poolDelete(c.Context(), shared, args[0]) }}
	set := a.poolSetCommand(&shared)
	get.ValidArgsFunction, del.ValidArgsFunction = a.complete(poolNames), a.complete(poolNames)
	p := parent("pool", groupHave, "Warm pools: sandboxes that wait, ready, for their first command", list, get, set, del)
	p.PersistentFlags().BoolVar(&shared, "shared", false, "the pools that serve every tenant, which takes the mesh's keys")
	p.Long = `A pool keeps pristine sandboxes of one template ready on every node, so that a task or a sandbox starts
in milliseconds. Each is used once; a pool refills in the background, grows with demand from its
minimum to its maximum, and replaces members that grew old or whose template changed.

A workspace's pool serves its own runs, one made with -w - those of the whole tenant.`
	return p
}

func (a *app) poolSetCommand(shared *bool) *cobra.Command {
	var p workspace.Pool
	var age time.Duration
	wait := false
	c := &cobra.Command{Use: "set TEMPLATE", Short: "Make the pool of a template, or change it", Args: exactly("TEMPLATE"),
		Long: "What no flag says stays as it is. A new pool keeps 1 member ready on each node, and twice its minimum at most.",
		Example: `  weft pool set python --min 2 --max 8 --wait
  weft -w - pool set base --min 1        # for the whole tenant
  weft pool set base --shared --min 4    # for every tenant`,
		RunE: func(c *cobra.Command, args []string) error {
			p.Name, p.MaxAgeMS = args[0], age.Milliseconds()
			return a.poolSet(c.Context(), *shared, p, c.Flags().Changed, wait)
		}}
	f := c.Flags()
	f.IntVar(&p.Min, "min", 1, "members kept ready on each node")
	f.IntVar(&p.Max, "max", 0, "members at most, when there is demand (default twice the minimum)")
	f.StringVar(&p.Level, "level", "", "security level: standard, high, custom (default the template's)")
	f.DurationVar(&age, "max-age", 0, "an unused member is replaced after so long (default 1h)")
	f.BoolVar(&wait, "wait", false, "until every node has the minimum ready")
	c.ValidArgsFunction = a.complete(templateNames)
	_ = c.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{workspace.LevelStandard, workspace.LevelHigh, workspace.LevelCustom}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// atPools connects and gives the pools of the workspace, or the shared ones.
func (a *app) atPools(ctx context.Context, shared bool, f func(poolPlace) error) error {
	if shared {
		return a.operate(ctx, func(o *client.Operator) error {
			return f(poolPlace{o.Pools(), workspace.PoolRef{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace}})
		})
	}
	return a.with(ctx, func(c *client.Client) error {
		return f(poolPlace{c.Pools(), workspace.PoolRef{Tenant: c.Tenant(), Workspace: c.Workspace()}})
	})
}

// find gives a pool by its template's name, or by the name that a manifest gave it.
func (p poolPlace) find(ctx context.Context, name string) (workspace.PoolStatus, error) {
	st, err := p.Get(ctx, name)
	if !fault.Is(err, fault.NotFound) {
		return st, err
	}
	all, lerr := p.List(ctx)
	if lerr != nil {
		return st, lerr
	}
	for _, x := range all {
		if x.Pool.Alias == name {
			return x, nil
		}
	}
	return st, err
}

func (a *app) poolList(ctx context.Context, shared bool) error {
	return a.atPools(ctx, shared, func(p poolPlace) error {
		ps, err := p.List(ctx)
		if err != nil {
			return err
		}
		return items(a, ps, "pool template of level min max ready making target claims misses oldest why", poolRow)
	})
}

// poolRow shows a pool with the sums over its nodes. Min and max are those of each node.
func poolRow(p workspace.PoolStatus) []string {
	var sum workspace.PoolState
	why := ""
	for _, n := range p.Nodes {
		sum.Ready, sum.Making, sum.Target = sum.Ready+n.Ready, sum.Making+n.Making, sum.Target+n.Target
		sum.Claims, sum.Misses = sum.Claims+n.Claims, sum.Misses+n.Misses
		if n.Oldest != nil && (sum.Oldest == nil || n.Oldest.Before(*sum.Oldest)) {
			sum.Oldest = n.Oldest
		}
		if n.Fault != nil && why == "" {
			why = n.Node + ": " + n.Fault.Message
		}
	}
	if p.Fault != nil {
		why = p.Fault.Message
	}
	row := []string{poolTitle(p), p.Name, poolOf(p), p.Pool.Level, fmt.Sprint(p.Pool.Min), fmt.Sprint(p.Pool.Max)}
	return append(append(row, poolCounts(sum)...), why)
}

func poolCounts(n workspace.PoolState) []string {
	oldest := ""
	if n.Oldest != nil {
		oldest = age(*n.Oldest)
	}
	return []string{fmt.Sprint(n.Ready), fmt.Sprint(n.Making), fmt.Sprint(n.Target), fmt.Sprint(n.Claims), fmt.Sprint(n.Misses), oldest}
}

func poolTitle(p workspace.PoolStatus) string {
	if p.Pool.Alias != "" {
		return p.Pool.Alias
	}
	return p.Name
}

// poolOf says whose a pool is.
func poolOf(p workspace.PoolStatus) string {
	switch {
	case p.Shared:
		return "all tenants"
	case p.Workspace == schemas.NoWorkspace:
		return "tenant"
	}
	return p.Workspace
}

func (a *app) poolGet(ctx context.Context, shared bool, name string) error {
	return a.atPools(ctx, shared, func(p poolPlace) error {
		st, err := p.find(ctx, name)
		if err != nil {
			return err
		}
		return a.item(st, func(w io.Writer) {
			level, why, maxAge := st.Pool.Level, "", time.Hour
			if level == "" {
				level = "the template's"
			}
			if st.Fault != nil {
				why = st.Fault.Message
			}
			if st.Pool.MaxAgeMS > 0 {
				maxAge = time.Duration(st.Pool.MaxAgeMS) * time.Millisecond
			}
			fields(w, "pool", poolTitle(st), "template", st.Name, "of", poolOf(st), "level", level, "version", fmt.Sprint(st.Pool.Version),
				"min", fmt.Sprint(st.Pool.Min), "max", fmt.Sprint(st.Pool.Max), "max age", maxAge.String(), "why", why)
			var rows [][]string
			for _, n := range st.Nodes {
				said := ""
				if n.Fault != nil {
					said = n.Fault.Message
				}
				rows = append(rows, append(append([]string{n.Node}, poolCounts(n)...), said))
			}
			a.table(strings.Fields("node ready making target claims misses oldest why"), rows)
		})
	})
}

func (a *app) poolDelete(ctx context.Context, shared bool, name string) error {
	return a.atPools(ctx, shared, func(p poolPlace) error {
		st, err := p.find(ctx, name)
		if err != nil {
			return err
		}
		if !p.own(st) {
			return fault.New(fault.NotFound, "the pool %s here is that of %s; delete it there, with -w - or --shared", name, poolOf(st))
		}
		if err := p.Delete(ctx, st.Name); err != nil {
			return err
		}
		return a.done(workspace.Name{Name: st.Name}, "pool %s deleted", name)
	})
}

// own reports whether a pool is one that this place may change, and not one that it only sees.
func (p poolPlace) own(st workspace.PoolStatus) bool {
	return st.Tenant == p.ref.Tenant && st.Workspace == p.ref.Workspace
}

func (a *app) poolSet(ctx context.Context, shared bool, want workspace.Pool, given func(string) bool, wait bool) error {
	return a.atPools(ctx, shared, func(p poolPlace) error {
		have, err := p.Get(ctx, want.Name)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err == nil && p.own(have) {
			want = keepPool(have.Pool, want, given)
		}
		if want.Max == 0 {
			want.Max = max(2*want.Min, 1)
		}
		got, err := p.Put(ctx, want)
		if err != nil {
			return err
		}
		if wait {
			if err := a.poolAwait(ctx, p, got); err != nil {
				return err
			}
		}
		return a.done(got, "pool %s keeps %d to %d sandboxes ready on each node; 'weft pool list' shows them", got.Name, got.Min, got.Max)
	})
}

// keepPool is the pool that is there, with what flags say.
func keepPool(have, want workspace.Pool, given func(string) bool) workspace.Pool {
	if given("min") {
		have.Min = want.Min
		have.Max = max(have.Max, have.Min)
	}
	if given("max") {
		have.Max = want.Max
	}
	if given("level") {
		have.Level = want.Level
	}
	if given("max-age") {
		have.MaxAgeMS = want.MaxAgeMS
	}
	return have
}

// poolAwait waits until every node that keeps the pool has its minimum ready, and at least one does keep it.
func (a *app) poolAwait(ctx context.Context, p poolPlace, want workspace.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, poolWait)
	defer cancel()
	t := time.NewTicker(poolLook)
	defer t.Stop()
	said, why := "", "no node keeps it yet; see 'weft node list'"
	for {
		st, err := p.Get(ctx, want.Name)
		if err == nil && st.Fault == nil && len(st.Nodes) > 0 {
			ready, all := 0, true
			for _, n := range st.Nodes {
				ready, all = ready+n.Ready, all && n.Ready >= want.Min
			}
			if all {
				return nil
			}
			row := poolRow(st)
			why = fmt.Sprintf("%d of %d ready", ready, want.Min*len(st.Nodes))
			if last := row[len(row)-1]; last != "" {
				why += "; " + last
			}
		} else if err == nil && st.Fault != nil {
			return fault.New(fault.Code(st.Fault.Code), "%s", st.Fault.Message)
		}
		if why != said {
			a.progress("pool %s: %s", want.Name, why)
			said = why
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Deadline, "pool %s is set, but not filled: %s", want.Name, why)
		case <-t.C:
		}
	}
}
