package weftd

import (
	"errors"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/app/lockfile"
	"github.com/weftmesh/weft/pkg/fault"
)

// lock takes part's lock in the data directory, so that no second process runs it there.
func lock(dir, part string) (release func(), err error) {
	f, holder, err := lockfile.Take(filepath.Join(dir, part+".lock"))
	if errors.Is(err, lockfile.ErrHeld) {
		return nil, fault.New(fault.Conflict, "another weftd (pid %s) runs %s on %s; stop it, or choose another -data-dir", holder, part, dir)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the data directory %s can't be written; run as a user who may, or choose another with -data-dir", dir)
	}
	return func() { _ = f.Close() }, nil
}
