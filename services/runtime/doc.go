// Package runtime is one node of the mesh: it runs attempts and interactive sandboxes on containerd.
//
// # What it owns
//
// The sandboxes of its machine (package sandbox), the spooled output of attempts, and a journal of how
// far each attempt has come. It owns no record: what the mesh knows of an attempt it writes through
// the workspace-manager, fenced by the attempt's number.
//
// # What comes in, what goes out
//
//	queue.<pool or node>.*                     pulled, only while there is room
//	node.<node>.<caller>.{sandbox-*, snapshot-remove, output, drain}
//	sbx.<tenant>.<workspace>.<sandbox>.<principal>.{exec, attach, process-*, dial, files, inspect …}
//	int.<node>.workspace-manager.{claim, renew, progress, finish, heartbeat, node-cleaned, sandbox-warned, sandbox-ended}
//	int.<node>.filesystem.{prepare, merge, discard, held}
//	int.<node>.secrets.{issue, renew, revoke}
//	out.<tenant>.<workspace>.<task>.<attempt>  live output, republished from the spool where it was not acknowledged
//
// # The way of an attempt
//
//	claiming → claimed → starting → running → exited → merged → revoked → finished → (gone)
//
// Each arrow is a record in the journal, written before the next step begins (and from the command's end
// on flushed to disk), and each step can be done again. A node that was killed anywhere reads the journal, finds the sandboxes that still
// run, and goes on; a command is started once per attempt: where it may have been started and its
// sandbox is gone, the attempt ends with a fault and the manager makes a new one. What the journal does
// not know is removed.
//
// # Warm pools
//
// The manager's answer to a heartbeat says which pools the node is to keep (poolkeeper.go). A run takes a member that fits
// (warm.go), or starts cold. How many there are to be, and what is made or removed next, is decided by pool.go, which looks at
// nothing but numbers. Members take no slots, go on while the node's process is away, and end with Purge.
//
// # The life of an interactive sandbox
//
// What is due next is a matter of times alone (life.go, activity.go says what counts as use). One loop per sandbox (live.go) looks at them,
// warns, ends, and does in its turn what is asked of the sandbox: extend, pause, resume (pause.go), fork (fork.go), snapshot
// (snapshot.go). So the journal has one writer. What its processes said last is kept by lastwords.go.
//
// # Fencing
//
// All claims are renewed in one request. A node that can't renew freezes its sandboxes a margin before
// the claims run out, with the kernel's freezer, and thaws those that are still its own when it can
// again; one that somebody has paused stays so. Attempts that are lost are ended without finish or merge.
//
// # Processes of a sandbox
//
// What is started by exec belongs to its caller: it is lossless, so that the caller, who may lose weftd in the middle,
// comes back by attach as its owner and misses nothing; it ends when the caller leaves, or is not back in time. What is
// started by process-start belongs to nobody. Any number may be attached, each with an offset of its own: what a
// reader with a name has not received is kept for it for a minute, also while this process is away. One that takes
// nothing while others wait is passed over after some seconds, and told of the gap. seats (deskseats.go) keep the
// places of those who may come back; package weftinit has the rings.
package runtime
