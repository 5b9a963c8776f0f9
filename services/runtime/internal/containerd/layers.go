package containerd

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
)

// labelRoot keeps what carries it from containerd's garbage collection.
const labelRoot = "containerd.io/gc.root"

// Layers gives the directories of an image's layers, the uppermost first, and keeps them from being removed until
// Delete of id. It is for a container whose root is not containerd's to make. Asked again it gives the same.
func (e *Engine) Layers(ctx context.Context, id string, image Image, labels map[string]string) ([]string, error) {
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	all := map[string]string{labelRoot: "weft"}
	for k, v := range labels {
		all[k] = v
	}
	service := e.client.SnapshotService(Snapshotter)
	view, err := service.View(ctx, id, image.Parent, snapshots.WithLabels(all))
	if errdefs.IsAlreadyExists(err) {
		view, err = service.Mounts(ctx, id)
	}
	if err != nil {
		return nil, diskFull(fmt.Errorf("layers of image %s: %w", image.Name, err))
	}
	return layersOf(view)
}

// layersOf reads the directories out of how containerd would mount a view: a bind of the only layer, or an overlay.
func layersOf(view []mount.Mount) ([]string, error) {
	if len(view) != 1 {
		return nil, fmt.Errorf("an image of %d mounts is not supported", len(view))
	}
	if m := view[0]; m.Type == "bind" {
		return []string{m.Source}, nil
	}
	s, err := snapshotted(view)
	return s.Lower, err
}

// Snapshotted is an overlay as containerd would mount it.
type Snapshotted struct {
	Lower   []string // directories, the uppermost first, whose owners are those of the image
	Options []string // of overlayfs: the upper layer, whose owners are the host's, and how it behaves
}

// snapshotted reads it from the snapshotter's word.
func snapshotted(mounts []mount.Mount) (s Snapshotted, err error) {
	if len(mounts) != 1 || mounts[0].Type != "overlay" {
		return s, fmt.Errorf("a snapshot that is mounted as %v is not supported", mounts)
	}
	for _, o := range mounts[0].Options {
		switch name, value, _ := strings.Cut(o, "="); name {
		case "lowerdir":
			s.Lower = strings.Split(value, ":")
		case "uidmap", "gidmap": // not overlayfs's: they say how Lower's owners are mapped
		default:
			s.Options = append(s.Options, o)
		}
	}
	if len(s.Lower) == 0 {
		return s, fmt.Errorf("a snapshot without layers is not supported")
	}
	return s, nil
}
