package manager

import (
	"context"
	"reflect"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
)

// TenantPut makes a tenant: its streams, then its signing key under seal, then its record. Asked again
// it does what is missing; without a seed it changes only the quota, and an empty quota leaves the one
// that is there. Who has the operator's key has made the tenant's account before.
func (s *Service) TenantPut(ctx context.Context, by mesh.Caller, req workspace.TenantPut) (workspace.Tenant, error) {
	var none workspace.Tenant
	if err := checkOperator(by); err != nil {
		return none, err
	}
	want := req.Tenant
	if err := invalid(definition.Tenant(&want)); err != nil {
		return none, err
	}
	if req.AgentSeed != "" {
		if err := checkSeed(req); err != nil {
			return none, err
		}
		if err := provision.Apply(ctx, s.js, provision.Tenant(want.Name, s.cfg.Replicas)); err != nil {
			return none, err
		}
	}
	if err := s.signers.save(ctx, want.Name, req.Account, req.AgentSeed, workspace.Active); err != nil {
		return none, err
	}
	v := s.tenants.await(ctx, want.Name)
	if v == nil {
		return none, fault.New(fault.Unavailable, "tenant %q is made but not followed yet; try again", want.Name)
	}
	r, err := s.stores.tenants.Put(ctx, tenantRecord(want.Name), func(t *workspace.Tenant, exists bool) (string, error) {
		if !exists {
			*t = workspace.Tenant{Name: want.Name, Quota: want.Quota, Policy: want.Policy, State: workspace.Active, CreatedAt: s.cfg.Now().UTC()}
			return "created", nil
		}
		// What the request leaves out stays as it is.
		quota := want.Quota != (workspace.Quota{}) && want.Quota != t.Quota
		policy := want.Policy != nil && !reflect.DeepEqual(want.Policy, t.Policy)
		if quota {
			t.Quota = want.Quota
		}
		if policy {
			t.Policy = want.Policy
		}
		if !quota && !policy {
			return "", nil
		}
		return "changed", nil
	})
	if err == nil {
		v.wait(ctx, r.Sequence)
	}
	return r.Value, err
}

// checkSeed refuses keys of the wrong kind. No word of the seed is ever in an error.
func checkSeed(req workspace.TenantPut) error {
	if !nkeys.IsValidPublicAccountKey(req.Account) {
		return fault.New(fault.Invalid, `field "account" must be an account's public key`)
	}
	kp, err := nkeys.FromSeed([]byte(req.AgentSeed))
	if err != nil {
		return fault.New(fault.Invalid, `field "agent_seed" must be the seed of an account's signing key`)
	}
	defer kp.Wipe()
	if pub, err := kp.PublicKey(); err != nil || !nkeys.IsValidPublicAccountKey(pub) {
		return fault.New(fault.Invalid, `field "agent_seed" must be the seed of an account's signing key`)
	}
	return nil
}

func tenantRecord(name string) records.Key {
	return records.Key{Tenant: name, Workspace: schemas.NoWorkspace, ID: name}
}

// TenantList lists the tenants by name.
func (s *Service) TenantList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Tenant], error) {
	if err := checkOperator(by); err != nil {
		return workspace.Page[workspace.Tenant]{}, err
	}
	var out []workspace.Tenant
	for _, name := range s.tenants.names() {
		t := workspace.Tenant{Name: name, State: workspace.Active}
		if v := s.viewByName(name); v != nil {
			if r, ok := v.tenants.get(tenantRecord(name)); ok {
				t = r.Value
			}
		}
		if k, ok, err := s.signers.entry(ctx, name); err == nil && ok {
			t.State = k.State
		}
		out = append(out, t)
	}
	return pageOf(out, req, func(t workspace.Tenant) string { return t.Name })
}

// TenantDelete begins to remove a tenant with everything of it; the leader does it from here on. It is
// gone when tenant-list no longer has it. The operator removes the account afterwards.
func (s *Service) TenantDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkOperator(by); err != nil {
		return none, err
	}
	if err := invalid(schemas.CheckName("tenant", req.Name)); err != nil {
		return none, err
	}
	if err := s.signers.save(ctx, req.Name, "", "", workspace.Deleting); err != nil {
		return none, err
	}
	// The record too, so that nothing new is taken; the entry alone is what counts.
	_, err := s.stores.tenants.Update(ctx, tenantRecord(req.Name), func(t *workspace.Tenant) (string, error) {
		if t.State == workspace.Deleting {
			return "", nil
		}
		t.State = workspace.Deleting
		return workspace.Deleting, nil
	})
	signal(s.purge)
	return none, notGone(err)
}

// OperatorTemplatePut makes a template that every tenant can use.
func (s *Service) OperatorTemplatePut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Template]) (workspace.Template, error) {
	if err := checkOperator(by); err != nil {
		return workspace.Template{}, err
	}
	return s.TemplatePut(ctx, mesh.Caller{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, Principal: by.Principal}, req)
}

// OperatorTemplateList lists the templates that every tenant can use.
func (s *Service) OperatorTemplateList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Template], error) {
	if err := checkOperator(by); err != nil {
		return workspace.Page[workspace.Template]{}, err
	}
	return s.TemplateList(ctx, mesh.Caller{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, Principal: by.Principal}, req)
}

// OperatorTemplateDelete removes a template that every tenant could use.
func (s *Service) OperatorTemplateDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	if err := checkOperator(by); err != nil {
		return workspace.Empty{}, err
	}
	return s.TemplateDelete(ctx, mesh.Caller{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, Principal: by.Principal}, req)
}
