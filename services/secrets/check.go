package secrets

import (
	"context"
	"slices"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

// secretOf is the secret called n in the caller's workspace.
func secretOf(by mesh.Caller, n string) (name.Secret, error) {
	if by.Workspace == schemas.NoWorkspace {
		return name.Secret{}, fault.New(fault.Invalid, "secrets belong to a workspace: name one in the subject in place of %q", schemas.NoWorkspace)
	}
	s := name.Secret{Tenant: by.Tenant, Workspace: by.Workspace, Name: n}
	return s, s.Check()
}

// workspaceOf checks that the caller names a workspace.
func workspaceOf(by mesh.Caller) error {
	_, err := secretOf(by, "x")
	return err
}

// checkWays refuses ways of delivery that do not exist, and gives them sorted and once.
func checkWays(as []string) ([]string, error) {
	if len(as) == 0 {
		return nil, fault.New(fault.Invalid, "as must say how the agent may have the secret: %s, %s or %s", wire.AsFile, wire.AsEnv, wire.AsVault)
	}
	for _, a := range as {
		if a != wire.AsFile && a != wire.AsEnv && a != wire.AsVault {
			return nil, fault.New(fault.Invalid, "as must be %s, %s or %s, not %q", wire.AsFile, wire.AsEnv, wire.AsVault, clip(a))
		}
	}
	out := slices.Clone(as)
	slices.Sort(out)
	return slices.Compact(out), nil
}

// audit writes an entry; err says how what it is about ended.
func (s *Service) audit(ctx context.Context, entry wire.Audit, err error) {
	entry.Time = s.now()
	if err != nil {
		code, message := fault.Public(err)
		entry.Code, entry.Message = string(code), message
	}
	// What happened has happened, also when the caller has gone meanwhile.
	if err := s.cfg.Auditor.Audit(context.WithoutCancel(ctx), entry); err != nil {
		s.log.Error("audit entry was not written", "action", entry.Action, "tenant", entry.Tenant, "err", err)
	}
}

// clip keeps a sentence short whatever was sent.
func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
