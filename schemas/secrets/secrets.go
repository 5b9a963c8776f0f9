// Package secrets holds the wire structs of the secrets service: secrets, grants and leases. A value
// travels only in PutRequest.Value and, sealed to the node's key, in Issued.Sealed.
package secrets

import "time"

// Operations for principals, on the req plane.
const (
	OpPut         = "put"
	OpList        = "list"
	OpDelete      = "delete"
	OpGrant       = "grant"
	OpGrantList   = "grant-list"
	OpGrantRevoke = "grant-revoke"
	OpLeaseList   = "lease-list"
	OpLeaseRevoke = "lease-revoke"
	OpVerify      = "verify" // a transit signature
)

// Operations for nodes and services, on the int plane.
const (
	OpIssue           = "issue"
	OpRenew           = "renew"
	OpRevoke          = "revoke"
	OpDeleteWorkspace = "delete-workspace"
)

// Kinds of secret.
const (
	KindKV      = "kv"      // a value in Vault's KV version 2
	KindTransit = "transit" // a key in Vault's transit engine that never leaves it
)

// PutRequest stores a secret or makes a transit key. The value is never returned by any operation.
type PutRequest struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"` // kv if empty
	Value string `json:"value,omitempty"`
	// Key type of a transit key: ed25519 if empty.
	KeyType string `json:"key_type,omitempty"`
}

// Secret describes a secret without its value.
type Secret struct {
	Name      string    `json:"name"`
	Kind      string    `json:"kind"`
	Version   int       `json:"version"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Grant is the record that an agent may have a credential, entity "grant", id derived from secret and agent.
type Grant struct {
	ID        string    `json:"id"`
	Secret    string    `json:"secret"`
	Agent     string    `json:"agent"`
	As        []string  `json:"as"`     // file, env, vault: the ways allowed
	TTLMS     int64     `json:"ttl_ms"` // of a lease, 60,000 if 0; renewed while the sandbox lives
	GrantedBy string    `json:"granted_by"`
	CreatedAt time.Time `json:"created_at"`
}

// GrantRequest makes a grant.
type GrantRequest struct {
	Secret string   `json:"secret"`
	Agent  string   `json:"agent"`
	As     []string `json:"as"`
	TTLMS  int64    `json:"ttl_ms,omitempty"`
}

// Lease is the record of what a sandbox was given, entity "lease", id the sandbox's. Recorded before it is issued, so
// that nothing issued is ever unknown. It holds Vault's accessor, never a token. Events: issuing, issued, renewed, revoked.
type Lease struct {
	Sandbox string   `json:"sandbox"`
	Task    string   `json:"task,omitempty"`
	Attempt int      `json:"attempt,omitempty"`
	Agent   string   `json:"agent"`
	Node    string   `json:"node"`
	Secrets []string `json:"secrets"`
	// Generation counts how often credentials were issued to this sandbox: again when the reply was lost.
	Generation int        `json:"generation,omitempty"`
	TTLMS      int64      `json:"ttl_ms,omitempty"`   // what a renewal gives
	Accessor   string     `json:"accessor,omitempty"` // of the parent token
	State      string     `json:"state"`              // issuing, active, revoked
	Reason     string     `json:"reason,omitempty"`   // of the revocation
	IssuedAt   time.Time  `json:"issued_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
}

// States of a lease.
const (
	LeaseIssuing = "issuing" // recorded; nothing that may do anything was issued yet
	LeaseActive  = "active"
	LeaseRevoked = "revoked"
)

// Reasons of a revocation that the service gives by itself. After the first two, the same attempt may ask anew.
const (
	ReasonExpired      = "expired"       // nobody renewed it
	ReasonAbandoned    = "abandoned"     // the service died while it issued
	ReasonNotHeld      = "not-held"      // the attempt is no longer the node's, or has ended
	ReasonGrantRevoked = "grant-revoked" // a grant that it used was taken back
	ReasonDeleted      = "deleted"       // with the workspace
	ReasonOperator     = "operator"      // somebody asked for its end
)

// Ways in which an agent may have a secret.
const (
	AsFile  = "file"  // at /run/secrets/<name>
	AsEnv   = "env"   // in a variable
	AsVault = "vault" // at the forwarded address of Vault
)

// Limits of the contract.
const (
	MaxValue   = 64 << 10  // bytes of a value
	MaxSecrets = 1000      // of a workspace
	MinTTLMS   = 30_000    // of a grant; nodes renew every 15 s
	MaxTTLMS   = 3_600_000 // of a grant
)

// IssueRequest asks for all credentials of a sandbox at once. The service checks with the manager that the caller
// holds the attempt, and takes the wanted secrets from there, not from here.
type IssueRequest struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Task      string `json:"task,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Sandbox   string `json:"sandbox"`
}

// IssueReply carries the credentials sealed to the node's curve key (nkeys xkey): JSON of Issued.
type IssueReply struct {
	Sealed    []byte    `json:"sealed"`
	SealedBy  string    `json:"sealed_by"` // the service's public curve key
	ExpiresAt time.Time `json:"expires_at"`
	Leases    int       `json:"leases"`
}

// Issued is what is inside the seal.
type Issued struct {
	Files []File            `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	// VaultToken is added by the node to requests at the forwarded address; the sandbox never sees it.
	VaultToken string   `json:"vault_token,omitempty"`
	VaultAddr  string   `json:"vault_addr,omitempty"`  // where the node reaches Vault: unix:///… or http(s)://…
	VaultPaths []string `json:"vault_paths,omitempty"` // "<METHOD> <path>" that are let through
	// VaultNamespace is the namespace of OpenBao or Vault Enterprise that the paths are in; empty is the root.
	VaultNamespace string   `json:"vault_namespace,omitempty"`
	Scrub          []string `json:"scrub,omitempty"` // exact values to scrub from output
}

// File is a credential as a file at /run/secrets/<Name>.
type File struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// RenewRequest keeps the leases of sandboxes alive.
type RenewRequest struct {
	Leases []LeaseRef `json:"leases"`
}

// LeaseRef names the lease of one sandbox.
type LeaseRef struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Task      string `json:"task,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Sandbox   string `json:"sandbox"`
}

// RenewReply answers each in order: the new expiry, or why not.
type RenewReply struct {
	Results []RenewResult `json:"results"`
}

// RenewResult is one of them.
type RenewResult struct {
	ExpiresAt time.Time `json:"expires_at"`
	Code      string    `json:"code,omitempty"`
	Message   string    `json:"message,omitempty"`
}

// RevokeRequest ends the leases of a sandbox. Revoking twice is not an error.
type RevokeRequest struct {
	LeaseRef
	Reason string `json:"reason"`
}

// RevokeReply says how many there were.
type RevokeReply struct {
	Leases int `json:"leases"`
}

// VerifyRequest checks a transit signature over data.
type VerifyRequest struct {
	Name      string `json:"name"`
	Data      []byte `json:"data"`
	Signature string `json:"signature"` // as Vault gives it: vault:v1:…
}

// VerifyReply says whether it holds.
type VerifyReply struct {
	Valid bool `json:"valid"`
}

// DeleteWorkspace removes everything of a workspace; an empty Workspace, of the whole tenant.
type DeleteWorkspace struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace,omitempty"`
}
