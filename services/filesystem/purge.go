package filesystem

import (
	"errors"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Purge unmounts every overlay of the data directory, the last mounted first. No service may be running there.
// What sandboxes had not merged is removed by the next service's sweep; heads, snapshots and artifacts stay.
func Purge(dataDir string) error {
	thawed := Thaw(dataDir)
	_, err := mounts.DetachBelow(dataDir)
	return errors.Join(thawed, err)
}

// Thaw lets the disks of overlays go on that a service had frozen when it was killed. No service may be running there. Sandboxes
// that wait for such a disk can't be ended before.
func Thaw(dataDir string) error { return tree.Thaw(dataDir) }
