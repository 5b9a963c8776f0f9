package filesystem

import "github.com/weftmesh/weft/pkg/mounts"

// Purge unmounts every overlay of the data directory, the last mounted first. No service may be running there.
// What sandboxes had not merged is removed by the next service's sweep; heads, snapshots and artifacts stay.
func Purge(dataDir string) error {
	_, err := mounts.DetachBelow(dataDir)
	return err
}
