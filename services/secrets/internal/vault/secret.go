package vault

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Info describes a secret. KeyType is empty for a KV secret.
type Info struct {
	secrets.Secret
	KeyType string
}

// Every secret, also a transit key, has metadata in the KV engine: they are one set of names per
// workspace, listed in one place. The metadata is written first and removed last, so a crash in the
// middle of a put or a removal leaves a name that is listed and can be put or removed again.

// Describe says what a secret is. not_found if there is none.
func (c *Client) Describe(ctx context.Context, s name.Secret) (Info, error) {
	var info Info
	err := c.do(ctx, "describe secret "+s.Name, func(ctx context.Context, v *api.Client) error {
		got, err := v.Logical().ReadWithContext(ctx, s.Metadata())
		if err == nil && got == nil {
			err = api.ErrSecretNotFound
		}
		if err != nil {
			return err
		}
		info, err = parseMetadata(s.Name, got.Data)
		return err
	})
	return info, err
}

func parseMetadata(secret string, data map[string]any) (Info, error) {
	// Through JSON: the API client gives numbers as json.Number and the rest untyped.
	var m struct {
		CurrentVersion int               `json:"current_version"`
		UpdatedTime    time.Time         `json:"updated_time"`
		Custom         map[string]string `json:"custom_metadata"`
	}
	b, err := json.Marshal(data)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return Info{}, err
	}
	info := Info{Secret: secrets.Secret{Name: secret, Kind: m.Custom["kind"], Version: m.CurrentVersion, UpdatedAt: m.UpdatedTime.UTC()}, KeyType: m.Custom["key_type"]}
	switch info.Kind {
	case "":
		info.Kind = secrets.KindKV // written by hand with Vault's own tools
	case secrets.KindTransit:
		info.Version = 1
	}
	return info, nil
}

// List names the secrets of a workspace, sorted.
func (c *Client) List(ctx context.Context, tenant, workspace string) ([]string, error) {
	return c.keys(ctx, "list secrets", name.KVMount+"/metadata/"+tenant+"/"+workspace)
}

// Tenants names the tenants that have secrets.
func (c *Client) Tenants(ctx context.Context) ([]string, error) {
	return c.folders(ctx, "list tenants", name.KVMount+"/metadata")
}

// Workspaces names the workspaces of a tenant that have secrets.
func (c *Client) Workspaces(ctx context.Context, tenant string) ([]string, error) {
	return c.folders(ctx, "list workspaces", name.KVMount+"/metadata/"+tenant)
}

// folders lists what Vault shows with a slash at its end, without it.
func (c *Client) folders(ctx context.Context, what, path string) ([]string, error) {
	keys, err := c.keys(ctx, what, path)
	var out []string
	for _, k := range keys {
		if k[len(k)-1] == '/' {
			out = append(out, k[:len(k)-1])
		}
	}
	return out, err
}

func (c *Client) keys(ctx context.Context, what, path string) ([]string, error) {
	var out []string
	err := c.do(ctx, what, func(ctx context.Context, v *api.Client) error {
		got, err := v.Logical().ListWithContext(ctx, path)
		if err != nil || got == nil {
			return err
		}
		out = out[:0]
		keys, _ := got.Data["keys"].([]any)
		for _, k := range keys {
			if s, ok := k.(string); ok {
				out = append(out, s)
			}
		}
		return nil
	})
	return out, err
}

// PutKV stores a new version of a value. conflict if the name is that of a transit key.
func (c *Client) PutKV(ctx context.Context, s name.Secret, v value.Value) (Info, error) {
	if err := c.claim(ctx, s, secrets.KindKV, ""); err != nil {
		return Info{}, err
	}
	err := c.do(ctx, "store secret "+s.Name, func(ctx context.Context, a *api.Client) error {
		_, err := a.Logical().WriteWithContext(ctx, s.Data(), map[string]any{"data": map[string]any{"value": v.Reveal()}})
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return c.Describe(ctx, s)
}

// PutKey makes a transit key; one of the same type that exists is kept as it is. conflict if the name
// is that of something else.
func (c *Client) PutKey(ctx context.Context, s name.Secret, keyType string) (Info, error) {
	if err := c.claim(ctx, s, secrets.KindTransit, keyType); err != nil {
		return Info{}, err
	}
	err := c.do(ctx, "make key "+s.Name, func(ctx context.Context, a *api.Client) error {
		_, err := a.Logical().WriteWithContext(ctx, s.Transit("keys"), map[string]any{"type": keyType})
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return c.Describe(ctx, s)
}

// claim writes the metadata by which a name is taken for one kind.
func (c *Client) claim(ctx context.Context, s name.Secret, kind, keyType string) error {
	is, err := c.Describe(ctx, s)
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return err
	case is.Kind != kind || is.KeyType != keyType:
		return fault.New(fault.Conflict, "secret %s exists as %s; delete it first with `weft secret rm %s`", s.Name, kindOf(is), s.Name)
	default:
		return nil
	}
	return c.do(ctx, "name secret "+s.Name, func(ctx context.Context, v *api.Client) error {
		custom := map[string]string{"kind": kind}
		if keyType != "" {
			custom["key_type"] = keyType
		}
		_, err := v.Logical().WriteWithContext(ctx, s.Metadata(), map[string]any{"max_versions": keptVersions, "custom_metadata": custom})
		return err
	})
}

func kindOf(i Info) string {
	if i.KeyType != "" {
		return "a transit key of type " + i.KeyType
	}
	return "a " + i.Kind + " value"
}

// Remove takes away every version of a secret, or the key. Removing what is not there is not_found.
func (c *Client) Remove(ctx context.Context, s name.Secret) error {
	is, err := c.Describe(ctx, s)
	if err != nil {
		return err
	}
	return c.do(ctx, "delete secret "+s.Name, func(ctx context.Context, v *api.Client) error {
		if is.Kind == secrets.KindTransit {
			_, err := v.Logical().WriteWithContext(ctx, s.Transit("keys")+"/config", map[string]any{"deletion_allowed": true})
			if err == nil {
				_, err = v.Logical().DeleteWithContext(ctx, s.Transit("keys"))
			}
			// The key may be gone already, or never made: Vault says 400 for both steps then.
			if err != nil && status(err) != http.StatusBadRequest && status(err) != http.StatusNotFound {
				return err
			}
		}
		_, err := v.Logical().DeleteWithContext(ctx, s.Metadata())
		return err
	})
}

// ReadKV reads the present value with the token of the sandbox that it is for: Vault itself refuses
// what the lease does not hold.
func (c *Client) ReadKV(ctx context.Context, token value.Value, s name.Secret) (value.Value, error) {
	var out value.Value
	err := c.do(ctx, "read secret "+s.Name, func(ctx context.Context, v *api.Client) error {
		got, err := As(v, token).Logical().ReadWithContext(ctx, s.Data())
		if status(err) == http.StatusForbidden {
			return fault.Wrap(err, fault.Unavailable, "the lease for secret %s ended before it could be read; try again", s.Name)
		}
		if err != nil {
			return err
		}
		if got == nil {
			return api.ErrSecretNotFound
		}
		data, _ := got.Data["data"].(map[string]any)
		text, ok := data["value"].(string)
		if !ok {
			return fault.New(fault.NotFound, "secret %s has no value; store one with `weft secret put %s`", s.Name, s.Name)
		}
		out = value.Of(text)
		return nil
	})
	return out, err
}

// Verify checks a transit signature over data. A signature that Vault can't read is not valid; it is no error.
func (c *Client) Verify(ctx context.Context, s name.Secret, data []byte, signature string) (bool, error) {
	valid := false
	err := c.do(ctx, "verify with key "+s.Name, func(ctx context.Context, v *api.Client) error {
		got, err := v.Logical().WriteWithContext(ctx, s.Transit("verify"), map[string]any{"input": data, "signature": signature})
		if status(err) == http.StatusBadRequest {
			return nil
		}
		if err != nil {
			return err
		}
		valid, _ = got.Data["valid"].(bool)
		return nil
	})
	return valid, err
}

// seconds is a duration as Vault takes it, rounded up to a whole second, at least 1.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(1, (d+time.Second-1)/time.Second)), 10) + "s"
}

var errNoAuth = errors.New("no token in the answer")
