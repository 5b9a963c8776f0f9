package cli

import (
	"context"
	"slices"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/cli/manifest"
)

// claimed is the request that a SandboxClaim comes to.
type claimed = workspace.SandboxCreate

// poolDefinitions are the pools of a place as definitions: without those that it only sees.
type poolDefinitions struct{ poolPlace }

func (d poolDefinitions) Get(ctx context.Context, name string) (workspace.Pool, error) {
	st, err := d.poolPlace.Get(ctx, name)
	if err == nil && !d.own(st) {
		err = fault.New(fault.NotFound, "no pool %q here", name)
	}
	return st.Pool, err
}

func (d poolDefinitions) Put(ctx context.Context, p workspace.Pool, _ int) (workspace.Pool, error) {
	return d.poolPlace.Put(ctx, p)
}

func (p *applier) pool(ctx context.Context, at poolPlace, v *workspace.Pool) (applied, error) {
	d := poolDefinitions{at}
	if v.Alias == "" { // the name that it has stays
		if have, err := d.Get(ctx, v.Name); err == nil {
			v.Alias = have.Alias
		}
	}
	return put(ctx, p.dry, d, v.Name, v, func(p *workspace.Pool) int { return p.Version })
}

// claim makes the sandbox of a claim, or finds the one that lives under its name.
func (p *applier) claim(ctx context.Context, name string, c *manifest.SandboxClaim) (applied, error) {
	if err := needWorkspace(p.c); err != nil {
		return applied{}, err
	}
	template, err := p.claimTemplate(ctx, c)
	if err != nil {
		return applied{}, err
	}
	life, why := c.Life(time.Now())
	if why != "" {
		return applied{}, fault.New(fault.Invalid, "%s", why)
	}
	ms := max(life.Milliseconds(), 1)
	req := claimed{Template: template, Claim: name, Env: c.Env, TTLMS: ms, IdleMS: ms}
	all, err := p.c.Sandboxes(ctx, 0)
	if err != nil {
		return applied{}, err
	}
	r := applied{Outcome: outcomeCreated}
	for _, s := range all {
		if s.Claim == name && s.State != workspace.SandboxStopped {
			r.Outcome, r.Sandbox = outcomeUnchanged, s.ID
		}
	}
	if p.dry {
		at := slices.IndexFunc(p.all, func(o manifest.Object) bool { return o.Value == any(c) })
		p.all[at].Value = &req
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	s, err := p.c.CreateSandbox(ctx, req)
	if err != nil {
		return applied{}, err
	}
	if s.ID != r.Sandbox {
		r.Outcome, r.Sandbox = outcomeCreated, s.ID
	}
	return r, nil
}

// claimTemplate is the template that a claim is of: named, or that of the warm pool it names, which may be in the
// same files.
func (p *applier) claimTemplate(ctx context.Context, c *manifest.SandboxClaim) (string, error) {
	if c.Pool == "" {
		return c.Template, nil
	}
	template := ""
	for _, o := range p.all {
		if v, ok := o.Value.(*workspace.Pool); ok && v.Alias == c.Pool {
			template = v.Name
		}
	}
	if template == "" {
		st, err := poolPlace{Pools: p.c.Pools()}.find(ctx, c.Pool)
		if fault.Is(err, fault.NotFound) {
			return "", fault.New(fault.NotFound, "there is no warm pool %q; apply its SandboxWarmPool first", c.Pool)
		}
		if err != nil {
			return "", err
		}
		template = st.Name
	}
	if c.Template != "" && c.Template != template {
		return "", fault.New(fault.Invalid, "the warm pool %q is of the template %q, not of %q", c.Pool, template, c.Template)
	}
	return template, nil
}
