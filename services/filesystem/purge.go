package filesystem

import (
	"errors"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Purge unmounts every overlay of the data directory, the last mounted first. No service may be running there.
// What sandboxes had not merged is removed by the next service's sweep; heads, snapshots and artifacts stay.
func Purge(dataDir string) error {
	thawed := tree.Thaw(dataDir)
	_, err := mounts.DetachBelow(dataDir)
	return errors.Join(thawed, err)
}
