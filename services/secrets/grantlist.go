package secrets

import (
	"context"
	"slices"
	"strings"

	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// GrantList gives the grants of the workspace, sorted by secret and agent.
func (s *Service) GrantList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[wire.Grant], error) {
	if err := workspaceOf(by); err != nil {
		return workspace.Page[wire.Grant]{}, err
	}
	rs, err := s.cfg.Grants.List(ctx, by.Tenant, by.Workspace)
	if err != nil {
		return workspace.Page[wire.Grant]{}, err
	}
	var grants []wire.Grant
	for _, r := range rs {
		grants = append(grants, r.Value)
	}
	// A space sorts before every character of a name, so a name comes before those that it begins.
	key := func(g wire.Grant) string { return g.Secret + " " + g.Agent }
	slices.SortFunc(grants, func(a, b wire.Grant) int { return strings.Compare(key(a), key(b)) })
	return pageOf(req, grants, key)
}
