// Package weftinit is the code of weft-init, process 1 of every sandbox. The node's side is package
// supervisor, what the two say to each other is package wire.
//
// # What it owns
//
// All processes of the sandbox: it starts them for the node, keeps their output in rings with
// offsets, reaps them and what is orphaned, and ends whole trees. It opens files with the
// payload's permissions, listens at the addresses whose connections it carries out to the node,
// and dials into the sandbox for it. It keeps nothing on disk.
//
// # How it is protected from what it runs
//
// It is uid 0 of the sandbox's user namespace with CAP_KILL, CAP_SETUID and CAP_SETGID there, and
// gives up every other capability, and the bounding set, before it dials. Payload always runs under
// another uid, with no capability, no_new_privs and the seccomp filter that weft-init put on itself;
// PR_SET_DUMPABLE 0 closes /proc/1. The key comes in a file that only uid 0 may read, inside a
// directory that only uid 0 may search; weft-init reads it before it runs anything, and the node
// unlinks it when the handshake is done. So it is in no environment, command line or OCI spec, where
// containerd's own records would keep it, and in no memory but weft-init's and the node's.
//
// Where the workspace has to be shown from inside (gVisor), a process made at the start keeps CAP_SYS_ADMIN for that one
// bind, see package binder; it has ended before anything else is started.
//
// With root inside, which a template may ask for, payload may be uid 0, too, with capabilities and setuid programs, and without
// no_new_privs. Process 1 then keeps CAP_SETPCAP, which nobody else can get, survives every signal, and takes the
// directory of its socket out of sight; root.go has all of it, and deploy/adr/isolation.md the reasons.
//
// # How trees are known
//
// Each process gets a supplementary group id that no other has. Whatever descends from it inherits
// that id, in any session, group or parentage, and can't drop it for lack of CAP_SETGID; no uid
// change gets past it either (root inside can drop it). So a sweep over /proc finds exactly the tree, without a helper process
// per command. A kernel without these (gVisor) still has the descent from parent to child.
//
// # Files
//
// Operations on files run on threads with the payload's effective ids, in short slices, and by descriptors: see
// walker, sink and openAt. They never wait for a FIFO or a lease, never follow a magic link of /proc, keep bounded
// memory however large or deep a tree is, and end when the node leaves.
//
// # When things go wrong
//
// The node gone: output waits in the rings, lossless processes block when theirs are full, and weft-init
// dials for ever, after 1 ms, doubling up to 250 ms. No more processes, memory or descriptors: a
// start fails as exhausted. Garbage on a stream: that stream ends. weft-init itself killed: the kernel ends
// the sandbox with it.
package weftinit
