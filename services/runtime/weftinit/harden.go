package weftinit

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/weftinit/seccomp"
)

// kept are the capabilities that weft-init works with, in its own user namespace: to run payload
// under other ids, and to signal it.
const kept = 1<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID

// harden gives up, on every thread, what is not needed any more, and installs the filter.
func harden(cfg config) error {
	// No descriptor that the container runtime may have left open reaches a payload.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	install := func() error { return seccomp.Install(cfg.seccomp, cfg.root) }
	if cfg.root {
		// Setuid programs work, so there is no no_new_privs; the filter takes CAP_SYS_ADMIN instead, which goes next.
		if err := install(); err != nil {
			return err
		}
		install = func() error { return nil }
	} else if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if os.Getpid() == 1 {
		if err := dropCapabilities(cfg); err != nil {
			return err
		}
	}
	return install()
}

func prctlAll(option, arg uintptr) error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, option, arg, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// dropCapabilities empties the bounding, inheritable and ambient sets and keeps only kept in the
// others; with root inside see capsFor. A bounding set that can't be emptied for lack of CAP_SETPCAP is tolerated if it holds
// nothing but kept: no_new_privs, and payload's uid, already keep it from being used.
func dropCapabilities(cfg config) error {
	permitted, effective, bounding := cfg.capsFor()
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil || held == 0 || bounding>>c&1 == 1 {
			continue
		}
		if err := prctlAll(unix.PR_CAPBSET_DROP, c); err != nil && kept>>c&1 == 0 {
			return fmt.Errorf("drop capability %d from the bounding set: %w; "+
				"start process 1 with CAP_SETPCAP or with fewer capabilities", c, err)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&hdr, &have[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if missing := permitted &^ (uint64(have[0].Permitted) | uint64(have[1].Permitted)<<32); missing != 0 {
		return fmt.Errorf("process 1 lacks capabilities %#x: it needs CAP_KILL, CAP_SETUID and CAP_SETGID, and what root inside is to have", missing)
	}
	set := capSets(permitted, effective)
	rootInside, plainCaps, fileEffective = cfg.root, effective, permitted
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&set)), 0)
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&set)
	if e != 0 {
		return fmt.Errorf("capset: %w", e)
	}
	return nil
}

// loopbackUp brings lo up in a network namespace that nobody has set up yet.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("state of lo: %w", err)
	}
	if ifr.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up (process 1 needs CAP_NET_ADMIN for it until it runs): %w", err)
	}
	return nil
}
