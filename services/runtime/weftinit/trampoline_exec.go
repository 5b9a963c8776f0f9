package weftinit

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limitAndExec does not come back unless it fails. It allocates nothing.
func limitAndExec(limits []rlimit, path *byte, argv, env []*byte) syscall.Errno {
	keepNofile := true
	for i := range limits {
		if limits[i].number == unix.RLIMIT_NOFILE {
			keepNofile = false
		}
		clampToHard(&limits[i])
	}
	if keepNofile {
		restoreNofile()
	}
	for i := range limits {
		_, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(limits[i].number), uintptr(unsafe.Pointer(&limits[i].limit)), 0, 0, 0)
		if e != 0 {
			return e
		}
	}
	_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return e
}

// clampToHard keeps a limit under the one that the sandbox has: it can't be raised without privileges,
// and asking for more than there is should give what there is.
func clampToHard(l *rlimit) {
	var have unix.Rlimit
	_, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(l.number), 0, uintptr(unsafe.Pointer(&have)), 0, 0)
	if e != 0 {
		return
	}
	l.limit.Max = min(l.limit.Max, have.Max)
	l.limit.Cur = min(l.limit.Cur, l.limit.Max)
}

// traditionalNofile is the soft limit that programs expect; some close or poll all up to it.
const traditionalNofile = 1024

// restoreNofile undoes that Go's runtime raised the soft limit of this program at its start.
func restoreNofile() {
	l := rlimit{number: unix.RLIMIT_NOFILE, limit: unix.Rlimit{Cur: traditionalNofile, Max: math.MaxUint64}}
	clampToHard(&l)
	syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(l.number), uintptr(unsafe.Pointer(&l.limit)), 0, 0, 0)
}
