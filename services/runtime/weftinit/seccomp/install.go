package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Known reports whether there is a profile of that name.
func Known(profile string) bool {
	_, ok := programs[profile]
	return ok
}

// Install puts the profile's filter on all threads of this program, for good: the one for sandboxes whose payload
// may be uid 0 if root is set. It takes no_new_privs, or CAP_SYS_ADMIN in the user namespace.
func Install(profile string, root bool) error {
	if root {
		profile += "-root"
	}
	program, ok := programs[profile]
	if !ok {
		return fmt.Errorf("there is no profile %q of system calls", profile)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(&prog)
	if e != 0 {
		return fmt.Errorf("install the system call filter: %w", e)
	}
	if thread != 0 {
		return fmt.Errorf("install the system call filter: thread %d has another one", thread)
	}
	return nil
}
