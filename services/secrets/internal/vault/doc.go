// Package vault is the adapter to the Vault API, which HashiCorp Vault and OpenBao both speak.
//
// It knows paths, policies and tokens, and nothing of grants, leases or the mesh. Every call has a
// deadline, every error is a fault whose sentence holds no value and no token, and a service token that
// Vault no longer takes is replaced by one new login.
//
// A token for a sandbox is made in two steps. Create gives a token that names a policy which does not
// exist, so it may do nothing. Empower writes that policy. Between the two the caller records the
// accessor; so no token that may do anything is ever unknown. Removing the policy takes the power away
// from the token before it is revoked.
package vault
