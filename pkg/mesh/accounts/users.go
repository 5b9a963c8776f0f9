package accounts

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Lifetimes of users. A connection whose JWT expires is closed; clients fetch a new one and reconnect.
const (
	ServiceLife = 24 * time.Hour
	UserLife    = time.Hour
	AgentLife   = 10 * time.Minute
)

// Credentials log one user in: a JWT and the key that it names. Seed is secret.
type Credentials struct {
	Name string
	JWT  string
	Seed []byte
}

// File gives the credentials in the format of NATS .creds files.
func (c Credentials) File() ([]byte, error) { return jwt.FormatUserConfig(c.JWT, c.Seed) }

// ParseFile reads a NATS .creds file.
func ParseFile(b []byte) (Credentials, error) {
	tok, err := jwt.ParseDecoratedJWT(b)
	if err != nil {
		return Credentials{}, err
	}
	kp, err := jwt.ParseDecoratedUserNKey(b)
	if err != nil {
		return Credentials{}, err
	}
	seed, err := kp.Seed()
	if err != nil {
		return Credentials{}, err
	}
	uc, err := jwt.DecodeUserClaims(tok)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{Name: uc.Name, JWT: tok, Seed: seed}, nil
}

// Service mints a user of one of WEFT's roles: a service, the operator or the provisioner.
func (k *Keyring) Service(role string) (Credentials, error) {
	key, ok := k.weft.roles[role]
	if !ok {
		return Credentials{}, fault.New(fault.NotFound, "no service %q", role)
	}
	return newUser(key, public(k.weft.key), role, nil, ServiceLife)
}

// Node mints the user of a node that pulls from pool.
func (k *Keyring) Node(name, pool string) (Credentials, error) {
	for what, s := range map[string]string{"node": name, "pool": pool} {
		if err := schemas.CheckName(what, s); err != nil {
			return Credentials{}, fault.New(fault.Invalid, "%v", err)
		}
	}
	if schemas.Reserved(name) || name == pool {
		return Credentials{}, fault.New(fault.Invalid, "node %q: the name is reserved; choose another", name)
	}
	return newUser(k.nodes.roles[RoleNode], public(k.nodes.key), name, []string{TagPool + ":" + pool}, ServiceLife)
}

// System mints a user of the system account, to push account claims to the servers.
func (k *Keyring) System() (Credentials, error) {
	return newUser(k.system, "", "system", nil, UserLife)
}

// User mints a tenant's user: a person or a program outside.
func (k *Keyring) User(tenant, principal string, life time.Duration) (Credentials, error) {
	t, err := k.tenant(tenant)
	if err != nil {
		return Credentials{}, err
	}
	if err := schemas.CheckName("principal", principal); err != nil {
		return Credentials{}, fault.New(fault.Invalid, "%v", err)
	}
	return newUser(t.roles[RoleUser], public(t.key), principal, nil, life)
}

// Minter mints the users of sandboxes of one tenant. It holds nothing but the agent role's signing key.
type Minter struct {
	account string
	key     nkeys.KeyPair
}

// NewMinter takes what creating the tenant gave.
func NewMinter(account, agentSeed string) (*Minter, error) {
	key, err := nkeys.FromSeed([]byte(agentSeed))
	if err != nil {
		return nil, fmt.Errorf("agent signing key: %w", err)
	}
	if !nkeys.IsValidPublicAccountKey(account) {
		return nil, fmt.Errorf("account %q is not an account's public key", account)
	}
	return &Minter{account: account, key: key}, nil
}

// Agent mints the JWT of a sandbox for userKey, the public key of a pair that its node made: only the
// node can log in with it. Every name is checked first: a wildcard in a tag would widen the permissions.
func (m *Minter) Agent(workspace, principal, sandbox, userKey string, life time.Duration) (string, error) {
	for _, err := range []error{
		schemas.CheckName("workspace", workspace), schemas.CheckName("principal", principal), schemas.CheckID("sandbox", sandbox),
	} {
		if err != nil {
			return "", fault.New(fault.Invalid, "%v", err)
		}
	}
	if !nkeys.IsValidPublicUserKey(userKey) {
		return "", fault.New(fault.Invalid, "user_key is not a user's public key")
	}
	return mint(m.key, m.account, userKey, principal, []string{TagWorkspace + ":" + workspace, TagSandbox + ":" + sandbox}, life)
}

func newUser(signer nkeys.KeyPair, account, name string, tags []string, life time.Duration) (Credentials, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return Credentials{}, err
	}
	tok, err := mint(signer, account, public(kp), name, tags, life)
	if err != nil {
		return Credentials{}, err
	}
	seed, err := kp.Seed()
	return Credentials{Name: name, JWT: tok, Seed: seed}, err
}

func mint(signer nkeys.KeyPair, account, userKey, name string, tags []string, life time.Duration) (string, error) {
	uc := jwt.NewUserClaims(userKey)
	uc.Name = name
	if account != "" { // signed by a role's key, so the role's template is all it may do
		uc.IssuerAccount = account
		uc.SetScoped(true)
	}
	uc.Tags.Add(tags...)
	uc.Expires = time.Now().Add(life).Unix()
	return uc.Encode(signer)
}

// NewAgent mints a whole sandbox user, key included, where node and minter are one: in tests and tools.
func NewAgent(m *Minter, workspace, principal, sandbox string) (Credentials, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return Credentials{}, err
	}
	tok, err := m.Agent(workspace, principal, sandbox, public(kp), AgentLife)
	if err != nil {
		return Credentials{}, err
	}
	seed, err := kp.Seed()
	return Credentials{Name: principal, JWT: tok, Seed: seed}, err
}
