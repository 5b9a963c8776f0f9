package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// deleteTimeout bounds the wait for a deletion of everything that a tenant or workspace has.
const deleteTimeout = 5 * time.Minute

func (a *app) tenantCommand() *cobra.Command {
	var quota workspace.Quota
	create := &cobra.Command{Use: "create NAME", Short: "Make a tenant, or change its quota", Args: exactly("NAME"),
		Example: "  weft tenant create acme --max-running 8",
		RunE: func(c *cobra.Command, args []string) error {
			return a.tenantCreate(c.Context(), workspace.Tenant{Name: args[0], Quota: quota})
		}}
	quotaFlags(create, &quota)
	create.Flags().IntVar(&quota.PoolMembers, "max-pool-members", 0, "members of its warm pools on each node, the sum of their maxima (default 16)")
	create.Flags().IntVar(&quota.Weight, "weight", 0, "share of turns beside other tenants (default 1)")
	list := &cobra.Command{Use: "list", Short: "List the tenants", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error { return a.tenantList(c.Context()) }}
	var yes bool
	del := &cobra.Command{Use: "delete NAME", Short: "Delete a tenant and everything it has", Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error { return a.tenantDelete(c.Context(), args[0], yes) }}
	del.Flags().BoolVar(&yes, "yes", false, "do not ask")
	var life time.Duration
	creds := &cobra.Command{Use: "creds TENANT PRINCIPAL", Short: "Print credentials with which a principal works from another machine", Args: exactly("TENANT", "PRINCIPAL"),
		Example: "  weft tenant creds acme alice --life 8h > alice.creds",
		RunE:    func(c *cobra.Command, args []string) error { return a.tenantCreds(c.Context(), args[0], args[1], life) }}
	creds.Flags().DurationVar(&life, "life", time.Hour, "how long they are valid, at most 720h")
	t := parent("tenant", groupMesh, "Make and delete tenants", create, list, del, creds, a.tenantPolicyCommand())
	t.Long = "Tenants own things: each is an account of its own in the NATS server. These commands need the\nmesh's keys, so they work on the machine that holds its data directory."
	return t
}

func quotaFlags(c *cobra.Command, q *workspace.Quota) {
	f := c.Flags()
	f.IntVar(&q.MaxPending, "max-pending", 0, "tasks that may wait")
	f.IntVar(&q.MaxRunning, "max-running", 0, "tasks that may be queued or running at once")
	f.IntVar(&q.Sandboxes, "max-sandboxes", 0, "interactive sandboxes at once")
	f.Var((*bytesValue)(&q.DiskBytes), "max-disk", "size of a workspace's files, as 10GiB")
}

func (a *app) tenantCreate(ctx context.Context, t workspace.Tenant) error {
	return a.operate(ctx, func(o *client.Operator) error {
		t, err := o.CreateTenant(ctx, t)
		if err != nil {
			return err
		}
		return a.done(t, "tenant %s is ready; 'weft tenant creds %s NAME' gives somebody access", t.Name, t.Name)
	})
}

func (a *app) tenantList(ctx context.Context) error {
	return a.operate(ctx, func(o *client.Operator) error {
		ts, err := o.Tenants(ctx)
		if err != nil {
			return err
		}
		return items(a, ts, "name state pending running age", func(t workspace.Tenant) []string {
			return []string{t.Name, t.State, limit(t.Quota.MaxPending), limit(t.Quota.MaxRunning), age(t.CreatedAt)}
		})
	})
}

func (a *app) tenantDelete(ctx context.Context, name string, yes bool) error {
	if err := a.confirm(yes, "Delete the tenant %s with all its workspaces, files, secrets and memory?", name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	return a.operate(ctx, func(o *client.Operator) error {
		if err := o.DeleteTenant(ctx, name); err != nil {
			return err
		}
		return a.done(workspace.Name{Name: name}, "tenant %s is gone", name)
	})
}

func (a *app) tenantCreds(ctx context.Context, tenant, principal string, life time.Duration) error {
	if life <= 0 || life > 720*time.Hour {
		return fault.New(fault.Invalid, "--life %s must be over 0 and at most 720h", life)
	}
	return a.operate(ctx, func(o *client.Operator) error {
		b, err := o.MintUser(tenant, principal, life)
		if err != nil {
			return err
		}
		_, err = a.out.Write(b)
		return err
	})
}
