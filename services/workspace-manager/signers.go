package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/keyring"
)

// tenantKey is a tenant's entry in the bucket of keys: which tenants there are, and how to mint the
// users of their sandboxes. The seed is sealed under the key file.
type tenantKey struct {
	Account string `json:"account"`
	Sealed  []byte `json:"sealed"`
	State   string `json:"state"` // active, deleting
}

// signers holds the minters of all tenants in memory.
type signers struct {
	s       *Service
	key     *keyring.Key
	mu      sync.RWMutex
	minters map[string]Minter
	ending  map[string]bool // tenants that are being deleted
}

// learn takes an entry as the bucket has it.
func (g *signers) learn(tenant string, entry []byte) error {
	var k tenantKey
	if err := json.Unmarshal(entry, &k); err != nil {
		return fmt.Errorf("entry of tenant %s: %w", tenant, err)
	}
	g.mu.Lock()
	g.ending[tenant] = k.State == workspace.Deleting
	g.mu.Unlock()
	if k.State == workspace.Deleting {
		signal(g.s.purge)
	}
	seed, err := g.key.Open(tenant, k.Sealed)
	if err != nil {
		return err
	}
	m, err := accounts.NewMinter(k.Account, string(seed))
	clear(seed)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.minters[tenant] = m
	return nil
}

func (g *signers) forget(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.minters, tenant)
	delete(g.ending, tenant)
}

// deleting gives the tenants that are being deleted.
func (g *signers) deleting() (out []string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for name, yes := range g.ending {
		if yes {
			out = append(out, name)
		}
	}
	return out
}

// mint makes the JWT with which a sandbox logs in as principal, for a key pair that its node made.
func (g *signers) mint(tenant, ws, principal, sandbox, userKey string) (string, error) {
	g.mu.RLock()
	m := g.minters[tenant]
	g.mu.RUnlock()
	if m == nil {
		return "", fault.New(fault.Unavailable, "tenant %s has no signing key here; `weft tenant create %s` stores it again", tenant, tenant)
	}
	return m.Agent(ws, principal, sandbox, userKey, accounts.AgentLife)
}

// save stores a tenant's key, or changes its state if seed is empty.
func (g *signers) save(ctx context.Context, tenant, account, seed, state string) error {
	kv, err := g.s.js.KeyValue(ctx, provision.KeysBucket)
	if err != nil {
		return err
	}
	for range 8 {
		e, err := kv.Get(ctx, tenant)
		var k tenantKey
		var rev uint64
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			if seed == "" {
				return fault.New(fault.NotFound, "no tenant %q", tenant)
			}
		case err != nil:
			return err
		default:
			rev = e.Revision()
			if err := json.Unmarshal(e.Value(), &k); err != nil {
				return err
			}
		}
		if k.State == workspace.Deleting && state == workspace.Active {
			return fault.New(fault.Conflict, "tenant %q is being deleted; wait until it is gone", tenant)
		}
		if k.State == state && (seed == "" || g.same(tenant, k, account, seed)) {
			return nil // so that telling it again at every start writes nothing
		}
		if seed != "" {
			k.Account, k.Sealed = account, g.key.Seal(tenant, []byte(seed))
		}
		k.State = state
		b, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if rev == 0 {
			_, err = kv.Create(ctx, tenant, b)
		} else {
			_, err = kv.Update(ctx, tenant, b, rev)
		}
		if err == nil {
			return g.learn(tenant, b)
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) && !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
	return fault.New(fault.Conflict, "tenant %q is being changed by somebody else; try again", tenant)
}

// same reports whether an entry holds this account and seed.
func (g *signers) same(tenant string, k tenantKey, account, seed string) bool {
	have, err := g.key.Open(tenant, k.Sealed)
	defer clear(have)
	return err == nil && k.Account == account && string(have) == seed
}

// entry reads a tenant's entry; ok is false if there is none.
func (g *signers) entry(ctx context.Context, tenant string) (k tenantKey, ok bool, err error) {
	kv, err := g.s.js.KeyValue(ctx, provision.KeysBucket)
	if err != nil {
		return k, false, err
	}
	e, err := kv.Get(ctx, tenant)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return k, false, nil
	}
	if err != nil {
		return k, false, err
	}
	return k, true, json.Unmarshal(e.Value(), &k)
}

// remove deletes the entry: the very last step of a tenant's deletion.
func (g *signers) remove(ctx context.Context, tenant string) error {
	kv, err := g.s.js.KeyValue(ctx, provision.KeysBucket)
	if err != nil {
		return err
	}
	if err := kv.Purge(ctx, tenant); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return err
	}
	g.forget(tenant)
	return nil
}
