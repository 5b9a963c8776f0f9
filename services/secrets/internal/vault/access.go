package vault

import (
	"net/http"
	"slices"

	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

// Access is what a lease may do with one secret.
type Access struct {
	Secret  name.Secret
	Kind    string
	KeyType string
}

// Key types that can be made, and what may be done with them.
var keyTypes = map[string][]string{
	"ed25519":           {"sign", "verify"},
	"ecdsa-p256":        {"sign", "verify"},
	"ecdsa-p384":        {"sign", "verify"},
	"rsa-3072":          {"sign", "verify"},
	"rsa-4096":          {"sign", "verify"},
	"aes256-gcm96":      {"encrypt", "decrypt"},
	"chacha20-poly1305": {"encrypt", "decrypt"},
}

// KeyTypes lists the types of transit keys, sorted.
func KeyTypes() []string {
	var out []string
	for t := range keyTypes {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// Signs reports whether keys of a type make signatures.
func Signs(keyType string) bool { return slices.Contains(keyTypes[keyType], "sign") }

// rules gives the exact paths and capabilities of a, in order.
func (a Access) rules() (paths []string, capability map[string]string) {
	if a.Kind == secrets.KindKV {
		return []string{a.Secret.Data()}, map[string]string{a.Secret.Data(): "read"}
	}
	capability = map[string]string{}
	for _, op := range keyTypes[a.KeyType] {
		paths = append(paths, a.Secret.Transit(op))
		capability[a.Secret.Transit(op)] = "update"
	}
	// The public half, and the key's versions.
	paths = append(paths, a.Secret.Transit("keys"))
	capability[a.Secret.Transit("keys")] = "read"
	return paths, capability
}

// LeasePolicy is the policy of a token: the paths of access and nothing else. No path has a wildcard.
func LeasePolicy(access []Access) string {
	doc := map[string][]string{}
	for _, a := range access {
		_, caps := a.rules()
		for p, c := range caps {
			doc[p] = []string{c}
		}
	}
	return marshalPolicy(doc)
}

// Requests lists what the forwarded address lets through for a, as "<METHOD> <path>". Vault takes PUT
// and POST for the same thing, and so do its clients.
func (a Access) Requests() []string {
	var out []string
	paths, caps := a.rules()
	for _, p := range paths {
		if caps[p] == "read" {
			out = append(out, http.MethodGet+" /v1/"+p)
		} else {
			out = append(out, http.MethodPut+" /v1/"+p, http.MethodPost+" /v1/"+p)
		}
	}
	return out
}
