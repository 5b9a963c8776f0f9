package weftinit

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// asUser runs f with the filesystem permissions of id, on a thread of its own that is thrown away
// after: its groups and filesystem ids are changed, and nothing changes them back. Only what f opens,
// makes or looks at is decided by them; a descriptor that it leaves works anywhere. f must not start goroutines
// that touch files, and must not block for long.
//
// The payload's user gains no hold over that thread: signals and tracing look at the real,
// effective and saved ids, which stay.
func asUser(id wire.Identity, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- func() error {
			if err := becomeFor(id); err != nil {
				return fmt.Errorf("take the ids %d:%d: %w", id.UID, id.GID, err)
			}
			return f()
		}()
	}()
	return <-result
}

// becomeFor changes this thread only, which the library calls of the same names would not.
func becomeFor(id wire.Identity) error {
	var groups unsafe.Pointer
	if len(id.Groups) > 0 {
		groups = unsafe.Pointer(&id.Groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(id.Groups)), uintptr(groups), 0); e != 0 {
		return e
	}
	runtime.KeepAlive(id.Groups)
	// These two report nothing; asking again with an id that can't be gives what is set.
	const ask = ^uintptr(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(id.GID), 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(id.UID), 0, 0)
	gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ask, 0, 0)
	uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ask, 0, 0)
	if uint32(gid) != id.GID || uint32(uid) != id.UID {
		return unix.EPERM
	}
	return nil
}
