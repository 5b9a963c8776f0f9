package manager

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
)

// PoolPut makes or changes the warm pool of a template, in the caller's workspace or with workspace "-" for the
// whole tenant. Nodes learn of it with their next heartbeat. The same again changes nothing.
//
// The quota is held exactly on one replica; two replicas asked in the same moment may exceed it by one pool.
func (s *Service) PoolPut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Pool]) (workspace.Pool, error) {
	p := req.Value
	if err := invalid(definition.Pool(&p)); err != nil {
		return p, err
	}
	k, v, err := s.owned(ctx, by, p.Name)
	if err != nil {
		return p, err
	}
	t, err := v.template(ctx, by.Workspace, p.Name)
	if err != nil {
		return p, err
	}
	if p.Level == workspace.LevelCustom && t.Level != workspace.LevelCustom {
		return p, fault.New(fault.Invalid, `template %q is not of level custom, so its pool can't be: state "custom" in the template`, p.Name)
	}
	if err := v.allows(firstLevel(p.Level, t.Level), t.Isolation); err != nil {
		return p, err
	}
	s.poolMu.Lock()
	defer s.poolMu.Unlock()
	if err := v.checkPool(ctx, k, &p); err != nil {
		return p, err
	}
	r, err := define(ctx, s, s.stores.pools, k, p, req.Version, func(p *workspace.Pool) (*int, *time.Time) { return &p.Version, &p.CreatedAt })
	return r.Value, err
}

// checkPool holds a pool against the tenant's quota and against the other pools' aliases, as the log has them. It
// keeps the alias that the pool has where p brings none.
func (v *view) checkPool(ctx context.Context, k records.Key, p *workspace.Pool) error {
	all, err := v.s.stores.pools.List(ctx, v.tenant, "*")
	if err != nil {
		return err
	}
	sum := p.Max
	for _, r := range all {
		switch {
		case r.Event == deleted:
		case r.Key == k && p.Alias == "":
			p.Alias = r.Value.Alias
		case r.Key == k && r.Value.Alias != "" && r.Value.Alias != p.Alias:
			return fault.New(fault.Conflict, "template %q has the pool %q already, and one is all it can have; delete that first, or use its name", k.ID, r.Value.Alias)
		case r.Key != k:
			sum += r.Value.Max
			if p.Alias != "" && r.Workspace == k.Workspace && r.Value.Alias == p.Alias {
				return fault.New(fault.Conflict, "there is a pool %q already, of the template %q", p.Alias, r.ID)
			}
		}
	}
	if quota := v.quota().PoolMembers; v.tenant != workspace.SystemTenant && sum > quota {
		return fault.New(fault.Exhausted, "the pools of tenant %s would have %d members on each node, its quota is %d; lower a pool's max, or delete one", v.tenant, sum, quota)
	}
	return nil
}

// PoolGet gives the pool that is nearest to the caller, as templates are found: the workspace's, the tenant's, the
// shared one.
func (s *Service) PoolGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.PoolStatus, error) {
	var none workspace.PoolStatus
	if err := invalid(schemas.CheckName("pool", req.Name)); err != nil {
		return none, err
	}
	all, err := s.poolsSeenBy(ctx, by)
	if err != nil {
		return none, err
	}
	found := none
	for _, p := range all { // the shared ones come first, the workspace's last
		if p.Name == req.Name {
			found = p
		}
	}
	if found.Name == "" {
		return none, fault.New(fault.NotFound, "template %q has no pool; `weft pool set %s` makes one", req.Name, req.Name)
	}
	return found, nil
}

// PoolList lists the pools of the workspace, of the tenant, and the shared ones of templates that the caller can
// use, with what each node says of them. Other tenants' pools are not among them.
func (s *Service) PoolList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.PoolStatus], error) {
	all, err := s.poolsSeenBy(ctx, by)
	if err != nil {
		return workspace.Page[workspace.PoolStatus]{}, err
	}
	return pageOf(all, req, func(p workspace.PoolStatus) string { return p.Name + " " + p.Workspace + " " + p.Tenant })
}

// PoolDelete removes a pool of the workspace, or with workspace "-" of the tenant. Its unused members go; what
// was handed out stays.
func (s *Service) PoolDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	if err := invalid(schemas.CheckName("pool", req.Name)); err != nil {
		return workspace.Empty{}, err
	}
	return workspace.Empty{}, remove(ctx, s, s.stores.pools, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
}

// shared is the operator as the owner of what all tenants share.
func shared(by mesh.Caller) mesh.Caller {
	return mesh.Caller{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, Principal: by.Principal}
}

// OperatorPoolPut makes a pool that serves every tenant's runs of a shared template.
func (s *Service) OperatorPoolPut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Pool]) (workspace.Pool, error) {
	if err := checkOperator(by); err != nil {
		return workspace.Pool{}, err
	}
	return s.PoolPut(ctx, shared(by), req)
}

// OperatorPoolGet gives a shared pool.
func (s *Service) OperatorPoolGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.PoolStatus, error) {
	if err := checkOperator(by); err != nil {
		return workspace.PoolStatus{}, err
	}
	return s.PoolGet(ctx, shared(by), req)
}

// OperatorPoolList lists the shared pools.
func (s *Service) OperatorPoolList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.PoolStatus], error) {
	if err := checkOperator(by); err != nil {
		return workspace.Page[workspace.PoolStatus]{}, err
	}
	return s.PoolList(ctx, shared(by), req)
}

// OperatorPoolDelete removes a shared pool.
func (s *Service) OperatorPoolDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	if err := checkOperator(by); err != nil {
		return workspace.Empty{}, err
	}
	return s.PoolDelete(ctx, shared(by), req)
}
