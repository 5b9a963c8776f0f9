// Package trampoline sets resource limits in a process before its program starts: setting them from
// outside, after the start, would be a race. weft-init executes itself, already as the payload's user, with
// Name as argv[0]; this package's init sees that, sets the limits and becomes the program.
//
// It imports nothing but syscall, so that Go initialises it (in the order of import paths, among
// those that are ready) before os and most others: that saves some of each such start.
package trampoline

import (
	"syscall"
	"unsafe"
)

// Name is argv[0] of the trampoline. Its other arguments are the limits as Encode writes them, the
// program's path, and the program's argv.
const Name = "weft-exec"

// StatusFD is where the trampoline says that it failed: 4 bytes of errno, in the machine's order. It
// closes by itself when the program is executed.
const StatusFD = 3

const exitFailed = 126

// Limit is one resource limit by its number.
type Limit struct {
	Number     int
	Soft, Hard uint64
}

func init() {
	if args, env, ok := commandLine(); ok {
		errno := run(args, env)
		b := [4]byte{byte(errno), byte(errno >> 8), byte(errno >> 16), byte(errno >> 24)} // both architectures are little-endian
		_, _ = syscall.Write(StatusFD, b[:])
		syscall.Exit(exitFailed)
	}
}

// commandLine gives the arguments behind Name, if this process is a trampoline, and its environment.
func commandLine() (args, env []string, ok bool) {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, false
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, err := syscall.Read(fd, buf)
	if err != nil || n <= len(Name) || string(buf[:len(Name)+1]) != Name+"\x00" {
		return nil, nil, false
	}
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		m, err := syscall.Read(fd, buf[n:])
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	rest := buf[len(Name)+1 : n]
	for len(rest) > 0 {
		end := 0
		for end < len(rest) && rest[end] != 0 {
			end++
		}
		args = append(args, string(rest[:end]))
		rest = rest[min(end+1, len(rest)):]
	}
	return args, syscall.Environ(), true
}

// run comes back only if it fails. Everything is laid out before the first limit is set, since a
// limit on memory may leave this program none.
func run(args, env []string) syscall.Errno {
	if len(args) < 3 {
		return syscall.EINVAL
	}
	syscall.CloseOnExec(StatusFD)
	limits, ok := Decode(args[0])
	if !ok {
		return syscall.EINVAL
	}
	path, err := syscall.BytePtrFromString(args[1])
	if err != nil {
		return syscall.EINVAL
	}
	argv, err1 := syscall.SlicePtrFromStrings(args[2:])
	envp, err2 := syscall.SlicePtrFromStrings(env)
	if err1 != nil || err2 != nil {
		return syscall.EINVAL
	}
	for i := range limits {
		l := &limits[i]
		r := syscall.Rlimit{Cur: l.Soft, Max: l.Hard}
		_, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, uintptr(l.Number), uintptr(unsafe.Pointer(&r)), 0, 0, 0)
		if e != 0 {
			return e
		}
	}
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])))
	return e
}
