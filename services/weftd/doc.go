// Package weftd puts a process together: it reads the configuration, takes the data directory's locks,
// starts the embedded bus and the services that -target names, each under its own credentials, and stops
// them in reverse order. It is the only package that knows several services.
//
// The data directory:
//
//	keys/       the operator's and the accounts' keys (0700); only where the bus is embedded
//	nats/       the accounts and the streams of the bus
//	files/      the filesystem service's chunks and trees
//	vault/      OpenBao's storage, its unseal key and the secrets service's token
//	memory/     SQLite files, one per tenant
//	runtime/    containerd's root and state, the attempts' journals and spools
//	traces/     the last spans, for `weft trace`
//	<part>.lock held by the process that runs the part
package weftd
