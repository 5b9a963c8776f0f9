// Package secrets is the service that owns secrets, grants and leases: it issues credentials just in
// time, delivers them sealed to the node that holds an attempt, renews and revokes them.
//
// Values are in Vault (HashiCorp Vault or OpenBao), under weft-kv and weft-transit. Grants and leases are
// records in the log, entities "grant" and "lease".
//
//	req.<tenant>.<workspace>.<principal>.secrets.*   put list delete grant grant-list grant-revoke
//	                                                 lease-list lease-revoke verify
//	int.<node>.secrets.*                             issue renew revoke
//	int.workspace-manager.secrets.*                  revoke delete-workspace; the operator, too
//	evt.<tenant>.<workspace>.grant.<id>              granted, changed
//	evt.<tenant>.<workspace>.lease.<sandbox>         issuing, issued, renewed, revoked
//	audit.<tenant>.secret                            put, delete, grant, issue, failed renew, revoke
//	int.secrets.workspace-manager.attempt            who holds an attempt, asked for each issue and renewal
//
// # A lease
//
// A sandbox has one lease: one token in Vault under which everything hangs that it was given. Its TTL is
// 60 s and it is renewed while the attempt is the node's. The order of an issue is
//
//  1. the record, issuing, with the names of the secrets
//  2. the token, which may do nothing: the policy that it names does not exist
//  3. the record, issued, with the token's accessor; a compare-and-set
//  4. the policy: exactly the paths of the grants
//  5. the values, read with that token, sealed to the node's key
//
// so no token that may do anything is ever unknown to the log. Dying in between:
//
//   - after 1: a record without anything in Vault. The node's repeat takes it over, or the reconciler ends it.
//   - after 2: a token without any power and without a record of its accessor. It ends by its TTL, and the
//     reconciler revokes it before, because its metadata names a record that does not have its accessor.
//   - after 3, 4 or 5: the node had no reply. Its repeat revokes this token and issues a new one; if it does
//     not come back, nobody renews, and the reconciler ends it as soon as the attempt is another's.
//
// A revocation removes the policy, revokes the token, then writes the record: dying in between leaves a
// record of something that has no power, and repeating it is harmless. A grant that is taken back is
// deleted first and its leases are listed after; an issue writes its record first and checks its grants
// after; so one of the two always sees the other.
//
// # When Vault is down
//
// Every operation that needs it is unavailable and may be repeated. Existing tokens live in Vault's storage
// and go on when it is back; those that could not be renewed meanwhile have ended at their TTL.
package secrets
