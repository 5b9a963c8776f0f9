package secrets

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// wanted is what a sandbox is to get, all of it granted.
type wanted struct {
	uses []use
	ttl  time.Duration // the shortest of the grants
}

type use struct {
	workspace.SecretUse
	info vault.Info
}

// access gives each secret of w once.
func (w wanted) access(k records.Key) []vault.Access {
	var out []vault.Access
	for _, u := range w.uses {
		a := u.access(k)
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func (u use) access(k records.Key) vault.Access {
	return vault.Access{Secret: name.Secret{Tenant: k.Tenant, Workspace: k.Workspace, Name: u.Name}, Kind: u.info.Kind, KeyType: u.info.KeyType}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// wanted checks every secret that an agent wants: its form, its grant, and that it exists.
func (s *Service) wanted(ctx context.Context, k records.Key, held workspace.AttemptReply) (wanted, error) {
	w := wanted{ttl: 0}
	env := map[string]bool{}
	for _, u := range held.Secrets {
		secret := name.Secret{Tenant: k.Tenant, Workspace: k.Workspace, Name: u.Name}
		if err := secret.Check(); err != nil {
			return w, err
		}
		if u.As == wire.AsEnv {
			if !envName.MatchString(u.Env) || env[u.Env] {
				return w, fault.New(fault.Invalid, "agent %q wants secret %q in variable %q, which is not a name or is taken; correct its definition", held.Principal, u.Name, clip(u.Env))
			}
			env[u.Env] = true
		}
		g, err := s.granted(ctx, k, held.Principal, u)
		if err != nil {
			return w, err
		}
		info, err := s.cfg.Vault.Describe(ctx, secret)
		if fault.Is(err, fault.NotFound) {
			return w, fault.Wrap(err, fault.NotFound, "secret %q is granted to agent %q but does not exist; store it with `weft secret put %s`", u.Name, held.Principal, u.Name)
		}
		if err != nil {
			return w, err
		}
		if info.Kind == wire.KindTransit && u.As != wire.AsVault {
			return w, fault.New(fault.Invalid, "secret %q is a transit key, which never leaves Vault; let agent %q have it as %s", u.Name, held.Principal, wire.AsVault)
		}
		w.uses = append(w.uses, use{u, info})
		ttl := s.cfg.TTL
		if g.TTLMS > 0 {
			ttl = time.Duration(g.TTLMS) * time.Millisecond
		}
		if w.ttl == 0 || ttl < w.ttl {
			w.ttl = ttl
		}
	}
	return w, nil
}

// granted gives the grant under which agent may have u.
func (s *Service) granted(ctx context.Context, k records.Key, agent string, u workspace.SecretUse) (wire.Grant, error) {
	command := "weft secret grant " + u.Name + " --agent " + agent + " --as " + u.As
	g, err := s.cfg.Grants.Get(ctx, records.Key{Tenant: k.Tenant, Workspace: k.Workspace, ID: GrantID(k.Tenant, k.Workspace, u.Name, agent)})
	switch {
	case fault.Is(err, fault.NotFound):
		return wire.Grant{}, fault.Wrap(err, fault.Denied, "agent %q has no grant for secret %q; an operator gives it with `%s`", agent, u.Name, command)
	case err != nil:
		return wire.Grant{}, err
	case !slices.Contains(g.Value.As, u.As):
		all := append(slices.Clone(g.Value.As), u.As)
		return wire.Grant{}, fault.New(fault.Denied, "agent %q may have secret %q as %s, not as %q; an operator changes it with `weft secret grant %s --agent %s --as %s`",
			agent, u.Name, strings.Join(g.Value.As, ", "), u.As, u.Name, agent, strings.Join(all, ","))
	}
	return g.Value, nil
}

// stillGranted looks at the grants alone.
func (s *Service) stillGranted(ctx context.Context, k records.Key, held workspace.AttemptReply) error {
	for _, u := range held.Secrets {
		if _, err := s.granted(ctx, k, held.Principal, u); err != nil {
			return err
		}
	}
	return nil
}

// collect gives the token its power and reads the values with it.
func (s *Service) collect(ctx context.Context, k records.Key, token vault.Token, policy string, w wanted) (wire.Issued, error) {
	var out wire.Issued
	if err := s.cfg.Vault.Empower(ctx, policy, w.access(k)); err != nil {
		return out, err
	}
	values := map[string]value.Value{}
	for _, u := range w.uses {
		if _, ok := values[u.Name]; ok || u.info.Kind != wire.KindKV {
			continue
		}
		v, err := s.cfg.Vault.ReadKV(ctx, token.Value, u.access(k).Secret)
		if err != nil {
			return out, err
		}
		values[u.Name] = v
		out.Scrub = append(out.Scrub, v.Reveal())
	}
	for _, u := range w.uses {
		v := values[u.Name]
		switch u.As {
		case wire.AsFile:
			out.Files = append(out.Files, wire.File{Name: u.Name, Value: v.Bytes()})
		case wire.AsEnv:
			if strings.ContainsRune(v.Reveal(), 0) {
				return out, fault.New(fault.Invalid, "secret %q has a zero byte, which a variable can't hold; let the agent have it as %s", u.Name, wire.AsFile)
			}
			if out.Env == nil {
				out.Env = map[string]string{}
			}
			out.Env[u.Env] = v.Reveal()
		case wire.AsVault:
			out.VaultToken, out.VaultAddr, out.VaultNamespace = token.Value.Reveal(), s.cfg.NodeAddress, s.cfg.Vault.Namespace()
			out.VaultPaths = append(out.VaultPaths, u.access(k).Requests()...)
		}
	}
	return out, nil
}
