// Package accounts is the identity of the mesh: the operator, the accounts and what each may exchange
// with the others, and the roles whose users are minted by scoped signing keys.
//
//	WEFT     the services, every stream and bucket
//	NODES    the nodes: they serve sbx and node, and import just what they need of WEFT
//	<tenant> one account each, without JetStream; it imports exactly its own subjects
//
// What a role may say stands in its template, in roles.go, as data; the NATS server enforces it.
// Tenant, workspace and principal are pinned in the subject by the server and never taken from a body.
package accounts
