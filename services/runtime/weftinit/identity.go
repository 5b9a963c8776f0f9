package weftinit

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// asUser runs f with the filesystem permissions of id: on one thread, whose groups and filesystem
// ids are changed and then changed back. Only what f opens, makes or looks at is decided by them; a
// descriptor that it leaves works anywhere. f must not start goroutines that touch files, must not call block,
// and must not block for long.
//
// The payload's user gains no hold over that thread: signals and tracing look at the real,
// effective and saved ids, which stay.
func asUser(id wire.Identity, f func() error) (err error) {
	block(func() {
		result := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			restored := false
			defer func() {
				if restored {
					runtime.UnlockOSThread()
				} // else the thread ends with the goroutine, and nobody else gets it
			}()
			err := become(id)
			if err == nil {
				err = f()
			} else {
				err = fmt.Errorf("take the ids %d:%d: %w", id.UID, id.GID, err)
			}
			restored = become(ownIdentity) == nil
			result <- err
		}()
		err = <-result
	})
	return err
}

// ownIdentity is process 1's, as it was at its start.
var ownIdentity = func() wire.Identity {
	id := wire.Identity{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	groups, _ := unix.Getgroups()
	for _, g := range groups {
		id.Groups = append(id.Groups, uint32(g))
	}
	return id
}()

// become changes this thread only, which the library calls of the same names would not.
func become(id wire.Identity) error {
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
