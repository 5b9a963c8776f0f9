package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

// Names of what Weft has in Vault beside its two mounts.
const (
	ServicePolicy = "weft-secrets" // of the service's own token
	Role          = "weft-sandbox" // under which the tokens of sandboxes are made
	LeasePrefix   = "weft-sbx-"    // of the policies of leases, one for each token
)

// MaxTTL is how long a sandbox's token can be kept alive by renewal. It stands in the role, because
// Vault takes the role's maximum, and not the token's own, when it renews.
const MaxTTL = 7 * 24 * time.Hour

// keptVersions of a KV secret: enough to undo a mistaken put by hand.
const keptVersions = 5

// Policy is the policy of the service's own token: what it needs and no more. It can read no KV value
// and sign nothing; it reads values with the token of the sandbox they are for. But who may write
// policies and make tokens can in the end do everything in that namespace of Vault: a Vault that is
// shared with others should give Weft a namespace of its own.
func Policy() string {
	return marshalPolicy(map[string][]string{
		name.KVMount + "/data/*":                      {"create", "update"},
		name.KVMount + "/metadata/*":                  {"create", "read", "update", "delete", "list"},
		name.TransitMount + "/keys/+":                 {"create", "read", "update", "delete"},
		name.TransitMount + "/keys/+/config":          {"update"},
		name.TransitMount + "/verify/+":               {"update"},
		"sys/policies/acl/" + LeasePrefix + "*":       {"create", "update", "delete"},
		"sys/capabilities-self":                       {"update"},
		"sys/policies/acl":                            {"list"},
		"sys/internal/ui/mounts/" + name.KVMount:      {"read"},
		"sys/internal/ui/mounts/" + name.TransitMount: {"read"},
		"auth/token/create/" + Role:                   {"update"},
		"auth/token/roles/" + Role:                    {"read"},
		"auth/token/accessors":                        {"list", "sudo"},
		"auth/token/accessors/":                       {"list", "sudo"},
		"auth/token/lookup-accessor":                  {"update"},
		"auth/token/renew-accessor":                   {"update"},
		"auth/token/revoke-accessor":                  {"update"},
		"auth/token/lookup-self":                      {"read"},
		"auth/token/renew-self":                       {"update"},
		"auth/token/revoke-self":                      {"update"},
	})
}

func marshalPolicy(paths map[string][]string) string {
	type rule struct {
		Capabilities []string `json:"capabilities"`
	}
	doc := map[string]map[string]rule{"path": {}}
	for p, caps := range paths {
		doc["path"][p] = rule{caps}
	}
	b, _ := json.Marshal(doc) // strings only: can't fail; keys are sorted
	return string(b)
}

// Provision makes what the service needs, with a client that may do everything: mounts, the role of
// sandbox tokens, the service's policy. What is there already is kept. It is safe to repeat.
func Provision(ctx context.Context, v *api.Client) error {
	if err := mount(ctx, v, name.KVMount, "kv", map[string]string{"version": "2"}); err != nil {
		return err
	}
	if err := mount(ctx, v, name.TransitMount, "transit", nil); err != nil {
		return err
	}
	if err := v.Sys().PutPolicyWithContext(ctx, ServicePolicy, Policy()); err != nil {
		return fmt.Errorf("write policy %s: %w", ServicePolicy, err)
	}
	// Orphans: the tokens of sandboxes live and die by their own TTL, also when the service's own token
	// is replaced, as after a new login by role.
	if _, err := v.Logical().WriteWithContext(ctx, "auth/token/roles/"+Role, role()); err != nil {
		return fmt.Errorf("write token role %s: %w", Role, err)
	}
	return nil
}

// role is what the tokens of sandboxes are.
func role() map[string]any {
	return map[string]any{
		"allowed_policies_glob":   []string{LeasePrefix + "*"},
		"token_no_default_policy": true,
		"orphan":                  true,
		"renewable":               true,
		"token_type":              "service",
		"token_explicit_max_ttl":  seconds(MaxTTL),
	}
}

// Fingerprint changes when Provision would make something else than before: a newer version of Weft then
// provisions the Vault that it runs anew.
func Fingerprint() string {
	r, _ := json.Marshal(role()) // strings and booleans: can't fail; keys are sorted
	return schemas.DerivedID(Policy(), string(r))
}

func mount(ctx context.Context, v *api.Client, path, kind string, options map[string]string) error {
	mounts, err := v.Sys().ListMountsWithContext(ctx)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	if m, ok := mounts[path+"/"]; ok {
		if m.Type != kind || m.Options["version"] != options["version"] {
			return fault.New(fault.Conflict, "Vault has something else mounted at %s; Weft needs %s there, unmount it", path, kind)
		}
		return nil
	}
	err = v.Sys().MountWithContext(ctx, path, &api.MountInput{Type: kind, Options: options, Description: "Weft"})
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// Ensure checks that Vault has what the service needs. With a token that may write the service's policy, an
// administrator's, it makes it, also where an older version had made it. To others it tells what is missing.
func (c *Client) Ensure(ctx context.Context) error {
	err := c.do(ctx, "check what Weft needs in Vault", func(ctx context.Context, v *api.Client) error {
		admin, err := may(ctx, v, "sys/policies/acl/"+ServicePolicy)
		if err == nil && admin {
			return Provision(ctx, v)
		}
		if err != nil && status(err) != http.StatusForbidden {
			return err
		}
		for _, path := range []string{"sys/internal/ui/mounts/" + name.KVMount, "sys/internal/ui/mounts/" + name.TransitMount, "auth/token/roles/" + Role} {
			s, err := v.Logical().ReadWithContext(ctx, path)
			if code := status(err); code == http.StatusForbidden || code == http.StatusNotFound || (err == nil && s == nil) {
				return fault.New(fault.Unavailable, "Vault lacks %s, or hides it from the service's token; start the secrets service once with an administrator's VAULT_TOKEN, which makes it and the policy %s, then with a token of that policy",
					path[strings.LastIndexByte(path, '/')+1:], ServicePolicy)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.waitForKV(ctx)
}

// waitForKV waits until a fresh KV mount has upgraded itself to version 2, which takes Vault a moment
// after the mount, and during which it refuses.
func (c *Client) waitForKV(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := c.do(ctx, "reach Weft's KV mount", func(ctx context.Context, v *api.Client) error {
			_, err := v.Logical().ListWithContext(ctx, name.KVMount+"/metadata")
			return err
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
