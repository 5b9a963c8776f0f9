package accounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Keyring holds the operator's and the accounts' private keys. It lies in a directory (0700, files
// 0600) that only the operator's context or the embedded data directory has; no service reads it.
type Keyring struct {
	dir      string
	operator nkeys.KeyPair
	system   nkeys.KeyPair
	weft     *account
	nodes    *account
}

// account is one account's keys: its own, and one signing key for each role.
type account struct {
	name  string
	key   nkeys.KeyPair
	roles map[string]nkeys.KeyPair
}

// accountFile is how an account's keys lie on disk.
type accountFile struct {
	Name  string            `json:"name"`
	Seed  string            `json:"seed"`
	Roles map[string]string `json:"roles"` // signing seeds by role
}

// OpenKeyring reads the keyring in dir, and makes it there first if the directory is empty or absent.
func OpenKeyring(dir string) (*Keyring, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tenants"), 0o700); err != nil {
		return nil, err
	}
	k := &Keyring{dir: dir}
	var err error
	if k.operator, err = seedFile(filepath.Join(dir, "operator.seed"), nkeys.CreateOperator); err != nil {
		return nil, err
	}
	if k.system, err = seedFile(filepath.Join(dir, "system.seed"), nkeys.CreateAccount); err != nil {
		return nil, err
	}
	if k.weft, err = openAccount(filepath.Join(dir, "weft.json"), "WEFT", weftRoles()); err != nil {
		return nil, err
	}
	k.nodes, err = openAccount(filepath.Join(dir, "nodes.json"), "NODES", []Role{nodeRole()})
	return k, err
}

// HasKeyring reports whether dir holds one that this process may read.
func HasKeyring(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "operator.seed"))
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Operator is the operator's own JWT, which servers trust.
func (k *Keyring) Operator() (*jwt.OperatorClaims, error) {
	oc := jwt.NewOperatorClaims(public(k.operator))
	oc.Name = "weft"
	oc.SystemAccount = public(k.system)
	tok, err := oc.Encode(k.operator)
	if err != nil {
		return nil, err
	}
	return jwt.DecodeOperatorClaims(tok)
}

// SystemAccount is the public key of the system account.
func (k *Keyring) SystemAccount() string { return public(k.system) }

// AccountJWTs gives every account's signed claims by public key: system, WEFT, NODES and all tenants.
func (k *Keyring) AccountJWTs() (map[string]string, error) {
	sys := jwt.NewAccountClaims(public(k.system))
	sys.Name = "SYS"
	claims := []*jwt.AccountClaims{sys, k.weftClaims(), k.nodesClaims()}
	names, err := k.Tenants()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		t, err := k.tenant(n)
		if err != nil {
			return nil, err
		}
		claims = append(claims, k.tenantClaims(t))
	}
	out := map[string]string{}
	for _, c := range claims {
		if out[c.Subject], err = k.encode(c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Tenants lists the tenants whose accounts are in the keyring.
func (k *Keyring) Tenants() ([]string, error) {
	es, err := os.ReadDir(filepath.Join(k.dir, "tenants"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range es {
		if n, ok := cutJSON(e.Name()); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

// Tenant is what creating a tenant gives: its account's JWT to push to the servers, and the signing
// key for the users of its sandboxes, which the workspace-manager gets.
type Tenant struct {
	Name      string
	Account   string // public key
	JWT       string
	AgentSeed string
}

// AddTenant makes a tenant's account, or gives the one that is there.
func (k *Keyring) AddTenant(name string) (*Tenant, error) {
	if err := schemas.CheckName("tenant", name); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	if schemas.Reserved(name) {
		return nil, fault.New(fault.Invalid, "tenant %q: the name is reserved; choose another", name)
	}
	t, err := openAccount(k.tenantPath(name), name, tenantRoles(name))
	if err != nil {
		return nil, err
	}
	tok, err := k.encode(k.tenantClaims(t))
	if err != nil {
		return nil, err
	}
	seed, err := t.roles[RoleAgent].Seed()
	if err != nil {
		return nil, err
	}
	return &Tenant{Name: name, Account: public(t.key), JWT: tok, AgentSeed: string(seed)}, nil
}

// RemoveTenant forgets a tenant's keys. Its account lives on in the servers until DeleteRequest is sent.
func (k *Keyring) RemoveTenant(name string) error {
	if err := schemas.CheckName("tenant", name); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	if err := os.Remove(k.tenantPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// DeleteRequest is the signed body for $SYS.REQ.CLAIMS.DELETE that removes a tenant's account.
func (k *Keyring) DeleteRequest(account string) (string, error) {
	g := jwt.NewGenericClaims(public(k.operator))
	g.Data["accounts"] = []string{account}
	return g.Encode(k.operator)
}

func (k *Keyring) tenantPath(name string) string {
	return filepath.Join(k.dir, "tenants", name+".json")
}

func (k *Keyring) tenant(name string) (*account, error) {
	if err := schemas.CheckName("tenant", name); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	if _, err := os.Stat(k.tenantPath(name)); err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "no tenant %q here; `weft tenant create %s` makes it", name, name)
	}
	return openAccount(k.tenantPath(name), name, tenantRoles(name))
}

// openAccount reads an account's keys, making those that are missing: a role that a newer version
// added gets its key on the next start.
func openAccount(path, name string, roles []Role) (*account, error) {
	f := accountFile{Name: name, Roles: map[string]string{}}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("keys %s: %w", path, err)
		}
	}
	a := &account{name: name, roles: map[string]nkeys.KeyPair{}}
	changed := false
	load := func(seed string) (nkeys.KeyPair, string, error) {
		if seed != "" {
			kp, err := nkeys.FromSeed([]byte(seed))
			return kp, seed, err
		}
		changed = true
		kp, err := nkeys.CreateAccount()
		if err != nil {
			return nil, "", err
		}
		s, err := kp.Seed()
		return kp, string(s), err
	}
	if a.key, f.Seed, err = load(f.Seed); err != nil {
		return nil, fmt.Errorf("keys %s: %w", path, err)
	}
	for _, r := range roles {
		if a.roles[r.Name], f.Roles[r.Name], err = load(f.Roles[r.Name]); err != nil {
			return nil, fmt.Errorf("keys %s, role %s: %w", path, r.Name, err)
		}
	}
	if !changed {
		return a, nil
	}
	if b, err = json.Marshal(f); err != nil {
		return nil, err
	}
	return a, writeSecret(path, b)
}

func seedFile(path string, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return nkeys.FromSeed(b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kp, err := create()
	if err != nil {
		return nil, err
	}
	seed, err := kp.Seed()
	if err != nil {
		return nil, err
	}
	return kp, writeSecret(path, seed)
}

// writeSecret replaces a file so that it is either whole or as it was, readable by its owner only.
func writeSecret(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func cutJSON(s string) (string, bool) {
	const ext = ".json"
	if len(s) > len(ext) && s[0] != '.' && s[len(s)-len(ext):] == ext {
		return s[:len(s)-len(ext)], true
	}
	return "", false
}
