package weftinit

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Root inside: payload may be uid 0, which process 1 is, too. What keeps them apart then:
//
//   - CAP_SETPCAP, which process 1 keeps and no payload can get (it is not in the bounding set): the kernel lets
//     nobody trace, or read through /proc, a process that has a capability which they lack.
//   - PR_SET_DUMPABLE 0, which asks for CAP_SYS_PTRACE on top, which nobody has.
//   - the filter, which keeps other processes' limits and signals of made-up origin from it; see seccomp/gen.
//   - no signal that can be sent then ends it: each has a handler.
//   - the node's socket is in no directory that payload could open: process 1 holds the only way to it, and goes it for
//     nobody (see workdir and connect).
//
// What is left to payload is to make process 1 slow (its priority), or the first to be killed when memory
// runs out (its score, which it sets right again at each start of a process). Both harm this sandbox only.

// apart is the capability that only process 1 has.
const apart = unix.CAP_SETPCAP

// fileCaps are for touching files as the payload's root, on one thread and for the time of it.
const fileCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID

// capsFor gives the sets of capabilities that process 1 keeps.
func (c config) capsFor() (permitted, effective, bounding uint64) {
	if !c.root {
		return kept, kept, 0
	}
	permitted = kept | 1<<apart | fileCaps&c.caps
	return permitted, permitted &^ fileCaps, c.caps
}

// checkCaps refuses what would make payload as strong as process 1.
func (c config) checkCaps() error {
	const never = 1<<apart | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_RESOURCE
	if c.caps&never != 0 || c.caps != 0 && !c.root {
		return fmt.Errorf("the capabilities %#x are not for payload", c.caps)
	}
	return nil
}

// checkRoot refuses uid 0, which is process 1's own, where there is no root inside.
func (c config) checkRoot(r *wire.Request) error {
	if !c.root && (r.As != nil && r.As.UID == 0 || r.Spec != nil && r.Spec.Identity.UID == 0) {
		return fault.New(fault.Invalid, "uid 0 is not for payload of this sandbox: name another user, or use a template with root_inside")
	}
	return nil
}

// rootInside says that this process 1 may run payload as uid 0; fileEffective is what its threads then need for files.
var (
	rootInside    bool
	plainCaps     uint64 // effective, as always
	fileEffective uint64 // effective, while files are touched as root
)

// setCaps sets this thread's sets.
func setCaps(permitted, effective uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	set := capSets(permitted, effective)
	_, _, e := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&set)), 0)
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&set)
	if e != 0 {
		return e
	}
	return nil
}

func capSets(permitted, effective uint64) [2]unix.CapUserData {
	return [2]unix.CapUserData{
		{Permitted: uint32(permitted), Effective: uint32(effective)},
		{Permitted: uint32(permitted >> 32), Effective: uint32(effective >> 32)},
	}
}

// takeCaps gives this thread the capabilities that touching files as id takes, after its ids were changed.
func takeCaps(id wire.Identity) error {
	switch {
	case !rootInside:
		return nil
	case id.UID == 0:
		return setCaps(fileEffective, fileEffective)
	}
	return nil // the kernel took the effective ones away with the uid
}

// giveCapsBack undoes it.
func giveCapsBack() error {
	if !rootInside {
		return nil
	}
	return setCaps(fileEffective, plainCaps)
}

// surviveSignals gives every signal that can be handled a handler that does nothing. Go's own would end the program;
// and without one the kernel spares process 1 only while its first thread does not block the signal, which Go's threads
// do for moments.
func surviveSignals() error {
	all := make(chan os.Signal, 1)
	for n := syscall.Signal(1); n < 65; n++ {
		switch n {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG, syscall.SIGPROF, 33: // can't be, or the runtime's own
		case syscall.SIGCHLD: // does nothing by itself; see reaper.run
		default:
			signal.Notify(all, n)
		}
	}
	// These the runtime leaves alone, because C libraries cancel threads with them. There is no C here; a library in a
	// child sets its own handler before it uses them.
	for _, n := range []syscall.Signal{32, 34} {
		if err := setAction(n, sigIgnore); err != nil {
			return err
		}
	}
	go func() {
		for range all { //nolint:revive // that is all
		}
	}()
	return nil
}

// The kernel's SIG_DFL and SIG_IGN.
const (
	sigDefault uintptr = 0
	sigIgnore  uintptr = 1
)

// setAction has the kernel do with a signal what the runtime does not know how to have done.
func setAction(n syscall.Signal, handler uintptr) error {
	action := [4]uintptr{handler} // the kernel's struct: handler, flags, restorer, mask
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if e != 0 {
		return fmt.Errorf("what signal %d does: %w", n, e)
	}
	return nil
}

// hideSocket takes the directory with the node's socket out of everybody's sight, and gives a way to it that only
// process 1 has.
func hideSocket(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", fmt.Errorf("directory of the node's socket: %w", err)
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return "", fmt.Errorf("hide the node's socket: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}
