package secrets

import (
	"context"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

// List gives the secrets of the workspace without their values, sorted by name.
func (s *Service) List(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[wire.Secret], error) {
	var out workspace.Page[wire.Secret]
	if err := workspaceOf(by); err != nil {
		return out, err
	}
	names, err := s.cfg.Vault.List(ctx, by.Tenant, by.Workspace)
	if err != nil {
		return out, err
	}
	slices.Sort(names)
	page, err := pageOf(req, names, func(n string) string { return n })
	if err != nil {
		return out, err
	}
	out.Cursor, out.Items = page.Cursor, []wire.Secret{}
	for _, n := range page.Items {
		info, err := s.cfg.Vault.Describe(ctx, name.Secret{Tenant: by.Tenant, Workspace: by.Workspace, Name: n})
		if fault.Is(err, fault.NotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, info.Secret)
	}
	return out, nil
}

// pageOf gives the items after the cursor. key is what they are sorted by, ascending, each once.
func pageOf[T any](req workspace.List, items []T, key func(T) string) (workspace.Page[T], error) {
	limit := req.Limit
	if limit == 0 {
		limit = 100
	}
	if limit < 1 || limit > 1000 {
		return workspace.Page[T]{}, fault.New(fault.Invalid, "limit %d must be 1 to 1000", limit)
	}
	from := 0
	if req.Cursor != "" {
		from, _ = slices.BinarySearchFunc(items, req.Cursor, func(item T, cursor string) int {
			if key(item) <= cursor {
				return -1
			}
			return 1
		})
	}
	rest := items[from:]
	page := workspace.Page[T]{Items: slices.Clip(rest[:min(limit, len(rest))])}
	if len(rest) > limit {
		page.Cursor = key(rest[limit-1])
	}
	if page.Items == nil {
		page.Items = []T{}
	}
	return page, nil
}
