package manager

import (
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// allows refuses what goes beyond the tenant's policy. The operator's own templates have none: who runs them is
// asked then.
func (v *view) allows(level string, i workspace.Isolation) error {
	if v.tenant == workspace.SystemTenant {
		return nil
	}
	if err := v.policy().Allows(level, i); err != nil {
		return fault.New(fault.Denied, "%v; ask whoever runs this mesh", err)
	}
	return nil
}

// admit checks a resolved run: the level is stated if it is custom, and the tenant may have all of it.
func (v *view) admit(run *workspace.RunSpec) error {
	if run.Level == workspace.LevelCustom && run.Custom == nil {
		return fault.New(fault.Invalid, `field "level": custom is stated by a template, and this run's states none`)
	}
	return v.allows(run.Level, run.Isolation)
}

// policy of the tenant; nil is the default.
func (v *view) policy() *workspace.Policy {
	if r, ok := v.tenants.get(records.Key{Tenant: v.tenant, Workspace: schemas.NoWorkspace, ID: v.tenant}); ok {
		return r.Value.Policy
	}
	return nil
}

// firstLevel is a pool's own level, or its template's.
func firstLevel(own, template string) string {
	if own != "" {
		return own
	}
	return template
}
