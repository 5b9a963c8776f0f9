package nodetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// Directories of Machines. A test process that was killed leaves its own behind, with a containerd, shims and
// sandboxes that run on; the next Machine clears them up.
const (
	dataPattern = "/var/tmp/weft-test-"
	runPattern  = "/run/weft-test-"
	ownerFile   = "owner" // names the test process, beyond doubt
	// unowned is how old a directory must be to have an owner's name in it: it gets that right after it is made.
	unowned = 10 * time.Minute
)

// own writes into a Machine's directory whose it is.
func own(dir string) error {
	self, err := proc.Identify(os.Getpid())
	if err != nil {
		return err
	}
	return proc.Write(filepath.Join(dir, ownerFile), self.Process)
}

// ClearDead removes everything of test processes that are gone. What has a living owner is never touched, nor is what
// may be getting one. Where another process is at it already it does nothing.
func ClearDead(ctx context.Context) error {
	lock, err := os.OpenFile("/run/weft-test.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // somebody else's turn
	}
	var errs []error
	// Those in /var/tmp last: their names tell the control groups.
	for _, pattern := range []string{runPattern, dataPattern} {
		dirs, err := filepath.Glob(pattern + "*")
		errs = append(errs, err)
		for _, dir := range dirs {
			if dead(dir) {
				errs = append(errs, clear1(ctx, dir))
			}
		}
	}
	return errors.Join(errs...)
}

// dead says that a directory's owner is gone.
func dead(dir string) bool {
	owner, err := proc.Read(filepath.Join(dir, ownerFile))
	if err == nil {
		return !owner.Alive()
	}
	st, err := os.Lstat(dir)
	return err == nil && st.IsDir() && time.Since(st.ModTime()) > unowned
}

// clear1 ends what runs on a directory, and removes it.
func clear1(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	errs := []error{endDaemons(ctx, dir)}
	sum := sha256.Sum256([]byte(dir)) // as package sandbox marks what belongs to a data directory
	if tree, err := cgroup.Open("/weft/" + hex.EncodeToString(sum[:4])); err == nil {
		groups, err := tree.List()
		errs = append(errs, err)
		for _, g := range groups {
			errs = append(errs, tree.Group(g).Kill(ctx), tree.Group(g).Remove(ctx))
		}
		tree.Prune()
	}
	_, err := mounts.Detach(dir)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err // what is mounted there must not be removed
	}
	return os.RemoveAll(dir)
}

// endDaemons kills the containerd and the shims that were started for a directory: they name it.
func endDaemons(ctx context.Context, dir string) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	var errs []error
	for _, l := range lines {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // ended meanwhile
		}
		name := filepath.Base(strings.SplitN(string(b), "\x00", 2)[0])
		if !strings.HasPrefix(name, "containerd") && !strings.HasPrefix(name, "runsc") || !strings.Contains(string(b), dir+"/") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(l)))
		p, err := proc.Identify(pid)
		if err != nil {
			continue
		}
		errs = append(errs, p.Signal(syscall.SIGKILL), p.Wait(ctx))
	}
	return errors.Join(append(errs, err)...)
}
