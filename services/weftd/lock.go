package weftd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
)

// lock takes part's lock in the data directory, so that no second process runs it there. The kernel
// drops it when the process ends, however it ends.
func lock(dir, part string) (release func(), err error) {
	path := filepath.Join(dir, part+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the data directory %s can't be written; run as a user who may, or choose another with -data-dir", dir)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "another weftd (pid %s) runs %s on %s; stop it, or choose another -data-dir", strings.TrimSpace(string(holder)), part, dir)
		}
		return nil, err
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	}
	return func() { _ = f.Close() }, nil
}
