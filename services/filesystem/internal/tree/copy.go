package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/diskimage"
)

// copyVolume makes the writable part of what another overlay of the same workspace has changed until now. Who writes there waits
// meanwhile. Both have the same base, so that what overlayfs noted about it in the one holds in the other.
func (t *Trees) copyVolume(o Overlay, image string) error {
	from, err := t.Get(o.From)
	if err != nil {
		return err
	}
	if from.Tenant != o.Tenant || from.Workspace != o.Workspace || from.Node != o.Node || from.Manifest != o.Manifest {
		return fmt.Errorf("%w: the overlay of sandbox %s is another workspace's, node's or base's", ErrNoOverlay, o.From)
	}
	if from.ReadOnly {
		return fmt.Errorf("%w: sandbox %s has changed nothing", ErrNoOverlay, o.From)
	}
	there := t.dir(o.From)
	err = diskimage.Frozen(filepath.Join(there, "disk"), func() error { return diskimage.Copy(filepath.Join(there, "disk.img"), image) })
	if err != nil {
		return fmt.Errorf("copy of what sandbox %s has changed: %w", o.From, err)
	}
	disk := filepath.Join(t.dir(o.Sandbox), "disk")
	if err := diskimage.Mount(image, disk); err != nil {
		return err
	}
	// overlayfs's own directory says that it is in use.
	work := filepath.Join(disk, "work")
	return errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o755))
}

// Thaw lets the disks of overlays go on that a process had frozen when it was killed. No other process may use data.
func Thaw(data string) error {
	overlays := filepath.Join(data, "overlays")
	entries, err := os.ReadDir(overlays)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, diskimage.Thaw(filepath.Join(overlays, e.Name(), "disk")))
	}
	return err
}
