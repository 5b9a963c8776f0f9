// Package name is the one place that knows where a secret of Weft lies in Vault. Every part is a DNS
// label, checked before a path is made of it, so no two secrets share a path and none leaves its
// tenant: labels have no dot, slash, percent sign, wildcard or upper-case letter.
package name

import (
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// The mounts of Weft in Vault. They are its own; nothing else may write to them.
const (
	KVMount      = "weft-kv"
	TransitMount = "weft-transit"
)

// Secret names one secret.
type Secret struct{ Tenant, Workspace, Name string }

// Check refuses any part that is not a DNS label. The sentence says which.
func (s Secret) Check() error {
	for _, part := range [][2]string{{"tenant", s.Tenant}, {"workspace", s.Workspace}, {"secret", s.Name}} {
		if err := schemas.CheckName(part[0], part[1]); err != nil {
			return fault.New(fault.Invalid, "%s", err)
		}
	}
	return nil
}

// Data is the path of the value in the KV engine, version 2.
func (s Secret) Data() string {
	return KVMount + "/data/" + s.Tenant + "/" + s.Workspace + "/" + s.Name
}

// Metadata is the path of what describes the secret. Every secret has it, also a transit key.
func (s Secret) Metadata() string {
	return KVMount + "/metadata/" + s.Tenant + "/" + s.Workspace + "/" + s.Name
}

// Key is the name of the transit key.
func (s Secret) Key() string { return s.Tenant + "." + s.Workspace + "." + s.Name }

// Transit is the path of an operation (keys, sign, verify, encrypt, decrypt) with the transit key.
func (s Secret) Transit(operation string) string {
	return TransitMount + "/" + operation + "/" + s.Key()
}

// Alias is the path by which a program in a sandbox may address the real path of a secret of its own
// workspace, without knowing mounts and tenants: weft-kv/data/acme/demo/db is kv/data/db, and
// weft-transit/sign/acme.demo.report is transit/sign/report. ok is false for any other path.
func Alias(real string) (alias string, ok bool) {
	parts := strings.Split(real, "/")
	switch {
	case len(parts) == 5 && parts[0] == KVMount && parts[1] == "data":
		return "kv/data/" + parts[4], true
	case len(parts) == 3 && parts[0] == TransitMount:
		key := strings.Split(parts[2], ".")
		if len(key) != 3 {
			return "", false
		}
		return "transit/" + parts[1] + "/" + key[2], true
	}
	return "", false
}
