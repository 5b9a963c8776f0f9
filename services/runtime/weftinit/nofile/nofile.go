// Package nofile knows the limit of descriptors that this process was started with. Package syscall
// raises the soft limit when it is initialised, and keeps to itself what it was, to give it to children
// that it starts; whoever executes a program in another way, or wants to know what a child will have,
// has to look before.
//
// So this package imports nothing, and Go initialises it (in the order of import paths, among those
// that are ready) before syscall. A test watches that.
package nofile

import "unsafe"

// Soft and Hard are the limit as it was.
var Soft, Hard uint64

const number = 7 // RLIMIT_NOFILE

func init() {
	var r struct{ soft, hard uint64 }
	if prlimit(0, number, nil, unsafe.Pointer(&r)) == 0 {
		Soft, Hard = r.soft, r.hard
	}
}

// prlimit is the system call, without package syscall. It gives the negative errno.
//
//go:noescape
func prlimit(pid, resource int, set, get unsafe.Pointer) int
