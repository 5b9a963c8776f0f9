package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install puts the filter on all threads of this program, for good. no_new_privs must be set.
func Install() error {
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
