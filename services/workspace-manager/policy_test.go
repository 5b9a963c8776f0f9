package manager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// What a tenant's policy leaves out is refused, with the field's name, for templates, tasks, sandboxes and pools;
// and for those that were there before it was narrowed.
func TestATenantsPolicy(t *testing.T) {
	b := newBed(t)
	put := func(tpl workspace.Template) (any, error) {
		return ask[workspace.Template](b.ctx(), b.user, "acme", "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: tpl})
	}
	no := func(field string, tpl workspace.Template) {
		t.Helper()
		_, err := put(tpl)
		require.True(t, fault.Is(err, fault.Denied), "%v", err)
		require.ErrorContains(t, err, `field "`+field+`"`)
	}
	yes := func(tpl workspace.Template) {
		t.Helper()
		_, err := put(tpl)
		require.NoError(t, err)
	}
	policy := func(p workspace.Policy) {
		t.Helper()
		got := must[workspace.Tenant](b, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Policy: &p}})
		require.Equal(t, &p, got.Policy)
	}
	rooty := workspace.Template{Name: "rooty", Image: "base", Isolation: workspace.Isolation{RootInside: true, WritableRoot: true}}
	kata := workspace.Template{Name: "kata", Image: "base", Level: "custom", Isolation: workspace.Isolation{Custom: &workspace.Custom{Runtime: "io.containerd.kata.v2"}}}
	raw := workspace.Template{Name: "raw", Image: "base", Level: "custom", Isolation: workspace.Isolation{RootInside: true, Custom: &workspace.Custom{Capabilities: []string{"CAP_CHOWN", "CAP_NET_RAW"}}}}
	high := workspace.Template{Name: "high", Image: "base", Level: "high"}

	// The default: root inside and a writable root are safe, other runtimes and capabilities are the operator's to give.
	yes(rooty)
	yes(high)
	no("custom.runtime", kata)
	no("custom.capabilities", raw)
	policy(workspace.Policy{Runtimes: []string{"io.containerd.kata.v2"}, Capabilities: []string{"CAP_NET_RAW"}})
	yes(kata)
	yes(raw)

	// Narrowed: templates that are there can't be run any more, nor kept warm.
	deny := false
	policy(workspace.Policy{Levels: []string{"standard"}, RootInside: &deny})
	no("root_inside", rooty)
	no("level", high)
	for name, field := range map[string]string{"rooty": "root_inside", "high": "level", "kata": "level"} {
		err := refused[workspace.Sandbox](b, fault.Denied, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: name})
		require.ErrorContains(t, err, `field "`+field+`"`, name)
		err = refused[workspace.Pool](b, fault.Denied, b.user, "acme", "demo", workspace.OpPoolPut, workspace.Put[workspace.Pool]{Value: workspace.Pool{Name: name, Min: 1, Max: 1}})
		require.ErrorContains(t, err, `field "`+field+`"`, name)
		id := b.submit(b.user, "acme", "demo", "k-"+name, workspace.Submission{Template: name, Command: []string{"true"}})
		task := b.until(id, workspace.Rejected)
		require.Equal(t, string(fault.Denied), task.Fault.Code, name)
		require.Contains(t, task.Fault.Message, `field "`+field+`"`, name)
	}
	err := refused[workspace.Sandbox](b, fault.Denied, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base", Level: "high"})
	require.ErrorContains(t, err, `field "level"`, "asked for by the request itself")

	// A quota that is set later leaves the policy alone; a wrong policy is refused.
	got := must[workspace.Tenant](b, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Quota: workspace.Quota{MaxRunning: 3}}})
	require.Equal(t, []string{"standard"}, got.Policy.Levels)
	for field, p := range map[string]workspace.Policy{
		"policy.levels": {Levels: []string{"none"}}, "policy.runtimes": {Runtimes: []string{"../runc"}}, "policy.capabilities": {Capabilities: []string{"CAP_SYS_ADMIN"}},
	} {
		err := refused[workspace.Tenant](b, fault.Invalid, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Policy: &p}})
		require.ErrorContains(t, err, field)
	}
}
