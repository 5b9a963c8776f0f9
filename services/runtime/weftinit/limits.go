package weftinit

import (
	"encoding/binary"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
	"github.com/weftmesh/weft/services/runtime/weftinit/nofile"
	"github.com/weftmesh/weft/services/runtime/weftinit/trampoline"
)

// limitsToSet are those of want that a child of ours would not have anyway. They can't be raised without
// privileges, and asking for more than the sandbox has gives what it has.
func limitsToSet(want []wire.Rlimit) []trampoline.Limit {
	var out []trampoline.Limit
	for _, w := range want {
		number, _ := wire.RlimitNumber(w.Name)
		have := inherited(number)
		l := trampoline.Limit{Number: number, Hard: min(w.Hard, have.Hard)}
		if l.Soft = min(w.Soft, l.Hard); l != have {
			out = append(out, l)
		}
	}
	return out
}

// inherited is the limit that a child of ours has.
func inherited(number int) trampoline.Limit {
	if number == unix.RLIMIT_NOFILE { // Go raised its own, and gives children the one from before
		return trampoline.Limit{Number: number, Soft: nofile.Soft, Hard: nofile.Hard}
	}
	var r unix.Rlimit
	_ = unix.Getrlimit(number, &r) // fails for no number that wire knows
	return trampoline.Limit{Number: number, Soft: r.Cur, Hard: r.Max}
}

// forkLimited starts the process through the trampoline and waits until its program is executed.
func (p *process) forkLimited(path string, limits []trampoline.Limit, attr *syscall.ProcAttr) (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil { // waiting takes no thread
		return 0, err
	}
	status := os.NewFile(uintptr(fds[0]), "status")
	defer status.Close()
	attr.Files = append(attr.Files, uintptr(fds[1])) // becomes trampoline.StatusFD
	limits = withNofile(limits)
	argv := append([]string{trampoline.Name, trampoline.Encode(limits), path}, wire.Strings(p.spec.Argv)...)
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

// withNofile adds the limit of descriptors that Go raised in the trampoline, too.
func withNofile(limits []trampoline.Limit) []trampoline.Limit {
	for _, l := range limits {
		if l.Number == unix.RLIMIT_NOFILE {
			return limits
		}
	}
	return append(limits, inherited(unix.RLIMIT_NOFILE))
}
