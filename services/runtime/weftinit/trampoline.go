package weftinit

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// trampolineName is argv[0] of weft-init when it was executed, already as the payload's user, to set
// resource limits and become the program. Setting them from outside after the start would be a race.
const trampolineName = "weft-exec"

// statusFD is where the trampoline reports that it failed: 4 bytes of errno. It closes by itself
// when the program is executed.
const statusFD = 3

// forkLimited starts the process through the trampoline and waits until it is executed.
func (p *process) forkLimited(path string, attr *syscall.ProcAttr) (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that waiting takes no thread
		return 0, err
	}
	status := os.NewFile(uintptr(fds[0]), "status")
	defer status.Close()
	attr.Files = append(attr.Files, uintptr(fds[1]))
	argv := append([]string{trampolineName, encodeRlimits(p.spec.Rlimits), path}, wire.Strings(p.spec.Argv)...)
	pid, err := p.init.reaper.fork("/proc/self/exe", argv, attr, p.reaped)
	_ = unix.Close(fds[1])
	if err != nil {
		return 0, err
	}
	var b [4]byte
	if n, _ := status.Read(b[:]); n < len(b) {
		return pid, nil
	}
	<-p.reaped // the trampoline has nothing more to do than to end
	return 0, syscall.Errno(binary.LittleEndian.Uint32(b[:]))
}

func encodeRlimits(limits []wire.Rlimit) string {
	var b strings.Builder
	for _, l := range limits {
		n, _ := wire.RlimitNumber(l.Name)
		fmt.Fprintf(&b, "%d:%d:%d,", n, l.Soft, l.Hard)
	}
	return b.String()
}

type rlimit struct {
	number int
	limit  unix.Rlimit
}

func decodeRlimits(s string) ([]rlimit, error) {
	var out []rlimit
	for _, part := range strings.Split(strings.TrimSuffix(s, ","), ",") {
		f := strings.Split(part, ":")
		if len(f) != 3 {
			return nil, unix.EINVAL
		}
		number, err1 := strconv.Atoi(f[0])
		soft, err2 := strconv.ParseUint(f[1], 10, 64)
		hard, err3 := strconv.ParseUint(f[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, unix.EINVAL
		}
		out = append(out, rlimit{number, unix.Rlimit{Cur: soft, Max: hard}})
	}
	return out, nil
}

// trampoline sets the limits and becomes the program: args are the limits, the path, and the
// program's argv. Everything is laid out before the first limit is set, since a limit on memory may leave
// this program none.
func trampoline(args []string) int {
	fail := func(err error) int {
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = unix.EINVAL
		}
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(errno))
		_, _ = unix.Write(statusFD, b[:])
		return codeNotExecutable
	}
	if len(args) < 3 {
		return fail(unix.EINVAL)
	}
	unix.CloseOnExec(statusFD)
	limits, err := decodeRlimits(args[0])
	if err != nil {
		return fail(err)
	}
	path, err := unix.BytePtrFromString(args[1])
	if err != nil {
		return fail(err)
	}
	argv, err1 := syscall.SlicePtrFromStrings(args[2:])
	env, err2 := syscall.SlicePtrFromStrings(os.Environ())
	if err1 != nil || err2 != nil {
		return fail(unix.EINVAL)
	}
	return fail(limitAndExec(limits, path, argv, env))
}
