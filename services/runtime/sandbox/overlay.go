package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/schemas/filesystem"
)

// overlayOptions let a directory of the lower layers be renamed, which the merge understands, and keep the
// upper layer plain otherwise: no files without content.
const overlayOptions = "redirect_dir=on,metacopy=off,index=off,xino=off"

// mountOverlay mounts the layers at target. The lower ones are seen with their owners mapped by m; the
// upper one belongs to the user that it maps to. scratch is an empty directory for the time of the call.
func (o *owners) mountOverlay(target, scratch string, l filesystem.Layers, m ownerMap, readOnly bool) (err error) {
	if err := checkLayers(l); err != nil {
		return err
	}
	// The overlay takes private copies of its layers' mounts; these here are not needed after it.
	defer func() {
		_, cleanup := mounts.DetachBelow(scratch)
		err = errors.Join(err, cleanup, os.RemoveAll(scratch))
	}()
	lower := make([]string, 0, len(l.Lower))
	for i, path := range l.Lower {
		at := filepath.Join(scratch, fmt.Sprint(i))
		if err := os.MkdirAll(at, 0o700); err != nil {
			return err
		}
		tree, err := o.idMapped(path, m, true)
		if err != nil {
			return err
		}
		if err := attach(tree, at); err != nil {
			return err
		}
		lower = append(lower, at)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	data := overlayOptions + ",lowerdir=" + strings.Join(lower, ":")
	if l.Upper != "" && !readOnly {
		if err := os.Lchown(l.Upper, int(m.to), int(m.to)); err != nil {
			return err
		}
		data += ",upperdir=" + l.Upper + ",workdir=" + l.Work
	} else {
		flags |= unix.MS_RDONLY
		if len(lower) == 1 { // an overlay without an upper layer wants two: an empty one below
			empty := filepath.Join(scratch, "empty")
			if err := os.Mkdir(empty, 0o755); err != nil {
				return err
			}
			data += ":" + empty
		}
	}
	if err := unix.Mount("overlay", target, "overlay", flags, data); err != nil {
		return fmt.Errorf("overlay of %d layers: %w", len(l.Lower), err)
	}
	return nil
}

// checkLayers refuses what can't be written into mount options.
func checkLayers(l filesystem.Layers) error {
	paths := append([]string{}, l.Lower...)
	if l.Upper != "" || l.Work != "" {
		paths = append(paths, l.Upper, l.Work)
	}
	if len(l.Lower) == 0 {
		return errors.New("an overlay without a lower layer")
	}
	for _, p := range paths {
		if !filepath.IsAbs(p) || strings.ContainsAny(p, `:,\`) {
			return fmt.Errorf("layer %q is not an absolute path without : , and \\", p)
		}
	}
	return nil
}
