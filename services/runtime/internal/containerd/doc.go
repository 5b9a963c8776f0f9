// Package containerd drives containerd by its Go client.
//
// An Engine is one containerd that this node uses: one that runs already, where its version serves,
// or a private one with a configuration, root and state of its own. A private one runs in a session
// of its own and survives the process that started it, as its containers survive it; the next Engine
// on the same directory finds it again by its pid file, checked against the process's start time and
// the machine's boot. When it dies, the Engine starts it again.
//
// A container runs under runc, gVisor (runtime.go has its options), or any other runtime that containerd knows by
// its name.
//
// What a container waits for at its start is had before: a shim that serves nobody yet (shim.go). Its process 1 is let
// go as soon as it can be (gate.go).
//
// Everything is kept in the containerd namespace "weft". Callers put an owner label on what they
// make, so that two nodes that share one containerd do not clean up after each other.
package containerd
