package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// numbers of system calls; those of one architecture only are added by it.
var numbers = map[string]uintptr{
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"fsopen": unix.SYS_FSOPEN, "fsmount": unix.SYS_FSMOUNT, "fspick": unix.SYS_FSPICK, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
	"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "clone3": unix.SYS_CLONE3,
	"ptrace": unix.SYS_PTRACE, "bpf": unix.SYS_BPF, "userfaultfd": unix.SYS_USERFAULTFD, "perf_event_open": unix.SYS_PERF_EVENT_OPEN,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER,
	"keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY,
	"init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE,
	"kexec_load": unix.SYS_KEXEC_LOAD, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON, "swapoff": unix.SYS_SWAPOFF,
	"quotactl": unix.SYS_QUOTACTL, "acct": unix.SYS_ACCT, "syslog": unix.SYS_SYSLOG, "vhangup": unix.SYS_VHANGUP,
	"settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME, "adjtimex": unix.SYS_ADJTIMEX,
	"sethostname": unix.SYS_SETHOSTNAME, "setdomainname": unix.SYS_SETDOMAINNAME,
	"fanotify_init": unix.SYS_FANOTIFY_INIT, "kcmp": unix.SYS_KCMP, "move_pages": unix.SYS_MOVE_PAGES, "migrate_pages": unix.SYS_MIGRATE_PAGES,
	"process_madvise": unix.SYS_PROCESS_MADVISE, "prlimit": unix.SYS_PRLIMIT64,
	"setpriority": unix.SYS_SETPRIORITY, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY, "ioprio_set": unix.SYS_IOPRIO_SET,
}

// call makes one system call: its name, numbers, and s:text for pointers to text, x:n for n bytes to be filled.
func call(args []string) []string {
	nr, ok := numbers[args[0]]
	if !ok {
		return []string{"ENOSYS"} // not on this architecture
	}
	runtime.LockOSThread()
	var a [6]uintptr
	var keep []*byte
	for i, s := range args[1:] {
		switch {
		case strings.HasPrefix(s, "s:"):
			p, _ := syscall.BytePtrFromString(s[2:])
			keep = append(keep, p)
			a[i] = uintptr(unsafe.Pointer(p))
		case strings.HasPrefix(s, "x:"):
			b := make([]byte, number(s[2:]))
			keep = append(keep, &b[0])
			a[i] = uintptr(unsafe.Pointer(&b[0]))
		case strings.HasPrefix(s, "o:"): // an open file
			fd, err := unix.Open(s[2:], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return []string{word(err)}
			}
			a[i] = uintptr(fd)
		default:
			a[i] = uintptr(number(s))
		}
	}
	r, _, e := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	runtime.KeepAlive(keep)
	if e == 0 {
		return []string{fmt.Sprintf("%s:%s=%d", reached, args[0], int(r))}
	}
	return []string{word(e)}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(64)
	}
	return n
}

func decimal(n int) string { return strconv.Itoa(n) }

// sockets opens one: domain, type, protocol.
func sockets(args []string) []string {
	var r refusals
	fd, err := unix.Socket(int(number(args[0])), int(number(args[1])), int(number(args[2])))
	if err == nil {
		_ = unix.Close(fd)
	}
	r.add("socket", err)
	return r
}

// clone asks for each kind of namespace with a new process. The child, were there one, ends at once.
func clone([]string) []string {
	var r refusals
	for _, flag := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		attr := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flag}}
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"hostile", "become"}, attr)
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
		r.add(strconv.FormatUint(uint64(flag), 16), err)
	}
	return r
}
