package weftinit

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// openTerminal makes a terminal that belongs to the payload's user: devpts gives the slave to whoever
// opens the master, so the master is opened with the payload's filesystem ids. That needs no CAP_CHOWN.
func (p *process) openTerminal(c *childIO) error {
	master, slave := -1, -1
	err := asUser(p.spec.Identity, func() (err error) {
		if master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		// The slave by the master itself: no path that somebody could have prepared.
		slave, err = ptyPeer(master)
		return err
	})
	if err != nil {
		if master >= 0 {
			_ = unix.Close(master)
		}
		return err
	}
	if err := setSize(master, *p.spec.PTY); err != nil {
		_ = unix.Close(master)
		_ = unix.Close(slave)
		return err
	}
	f := os.NewFile(uintptr(master), "ptmx")
	c.files, c.ours, c.outputs = append(c.files, slave), append(c.ours, f), append(c.outputs, f)
	for i := range c.child {
		c.child[i] = uintptr(slave)
	}
	p.tty = f
	p.stdin = &stdin{file: f, terminal: true}
	return nil
}

// ptyPeer opens the slave with the flags that TIOCGPTPEER takes as its argument.
func ptyPeer(master int) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

func setSize(master int, s wire.Size) error {
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
}

func (p *process) resize(s wire.Size) error {
	if p.tty == nil {
		return fault.New(fault.Conflict, "process %s has no terminal: start it with one", p.spec.ID)
	}
	raw, err := p.tty.SyscallConn()
	if err != nil {
		return fault.Wrap(err, fault.Conflict, "process %s has ended", p.spec.ID)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = setSize(int(fd), s) }); err != nil {
		return fault.Wrap(err, fault.Conflict, "process %s has ended", p.spec.ID)
	}
	return fault.Wrap(serr, fault.Internal, "the terminal's size could not be set")
}
