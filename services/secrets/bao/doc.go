// Package bao runs OpenBao (or HashiCorp Vault) as a child process for a mesh that has no Vault of its own.
//
// The process has a session of its own and outlives the daemon that started it; the next daemon finds
// it again, unseals it if needed, and goes on with the same token. It listens on a unix socket (0600, in a
// directory of mode 0700). Its raft storage insists on TCP listeners, also when it is alone; so it lives in
// a network namespace with nothing in it but a loopback of its own, where no other process is. It
// therefore reaches no network either: an engine that must log in to a database needs an external Vault.
//
// Files in the directory:
//
//	weftd.lock     held by the daemon that manages this directory; a second one is refused
//	alive.lock     held by the server process itself for as long as it lives
//	process.json   its pid, start time and boot, so that a recycled pid is never taken for it
//	server.hcl     its configuration, written at every start
//	keys.json      unseal key and the service's token (0600)
//	bao.sock       where it listens
//	raft/          its storage
//	audit.log      its audit device, declared in the configuration; rotated by size
//	server.log     what it prints
//
// What happens when something dies:
//   - the server: Run starts and unseals it again, in some 200 ms; tokens and leases are in its storage.
//   - the daemon, at any point of the first start: an initialisation whose key was not written yet has no
//     secrets, so it is thrown away and made anew; everything after it is repeated, which changes nothing.
//   - the daemon between starting the process and writing process.json: alive.lock tells that it runs, the
//     socket's peer credentials tell its pid.
//   - nothing, but a newer daemon needs other policies: the same way as for the next.
//   - the service's token (the machine was off for longer than it lasts): a root token is made with the
//     unseal key, makes a new one, and is revoked.
package bao
