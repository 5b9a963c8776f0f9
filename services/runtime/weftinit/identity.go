package weftinit

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// asUser runs f with the filesystem permissions of id: on one thread, whose groups and effective
// ids are changed and then changed back. Only what f opens, makes or looks at is decided by them; a
// descriptor that it leaves works anywhere. f must not start goroutines that touch files, must not call block,
// and must not block for long.
//
// The payload's user gains no hold over that thread: signals and tracing ask for the real and the saved
// id, too, and these stay.
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
				err = takeCaps(id)
			}
			if err == nil {
				err = f()
			} else {
				err = fmt.Errorf("take the ids %d:%d: %w", id.UID, id.GID, err)
			}
			restored = become(ownIdentity) == nil && giveCapsBack() == nil
			// A change of ids resets this to what fs.suid_dumpable of the machine says.
			_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
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

// become changes this thread only, which the library calls of the same names would not. The
// effective ids decide about files; the real and saved ones stay, and bring back process 1's own. setfsuid would
// do it too, but gVisor has none.
func become(id wire.Identity) error {
	const keep = ^uintptr(0)
	call := func(trap, a, b, c uintptr) error {
		if _, _, e := unix.RawSyscall(trap, a, b, c); e != 0 {
			return e
		}
		return nil
	}
	groups := id.Groups
	if len(groups) == 0 {
		groups = []uint32{id.GID} // for a valid pointer; none of it is read
	}
	setGroups := func() error {
		return call(unix.SYS_SETGROUPS, uintptr(len(id.Groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	}
	setGID := func() error { return call(unix.SYS_SETRESGID, keep, uintptr(id.GID), keep) }
	setUID := func() error { return call(unix.SYS_SETRESUID, keep, uintptr(id.UID), keep) }
	steps := []func() error{setGroups, setGID, setUID}
	if id.UID == ownIdentity.UID { // the way back: the capabilities for the rest come with the uid
		steps = []func() error{setUID, setGID, setGroups}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	runtime.KeepAlive(groups)
	return nil
}
