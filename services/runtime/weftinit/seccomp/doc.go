// Package seccomp is the system call filter that weft-init puts on itself, and so on all it starts.
//
// It is compiled ahead: runc would compile a profile at every create, for 20 ms. The source is
// containerd's default profile for a container without capabilities, made stricter; see gen/policy.go. What a
// language's profile adds to that, and why, is in gen/profiles.go.
// A call that is denied gives EPERM, one whose number this build does not know ENOSYS, so that
// programs fall back as on an older kernel; a call of another architecture kills the process.
package seccomp

//go:generate go run ./gen
