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
func (o *owners) mountOverlay(target, scratch string, l filesystem.Layers, m ownerMap, readOnly bool) error {
	if err := checkLayers(l); err != nil {
		return err
	}
	if l.Upper != "" && !readOnly {
		if err := os.Lchown(l.Upper, int(m.to), int(m.to)); err != nil {
			return err
		}
	} else {
		l.Upper = ""
	}
	var trees []int
	// The overlay takes private copies of its layers' mounts; these here are not needed after it.
	defer func() {
		for _, t := range trees {
			_ = unix.Close(t)
		}
	}()
	for _, path := range l.Lower {
		tree, err := o.idMapped(path, m, true)
		if err != nil {
			return err
		}
		trees = append(trees, tree)
	}
	err := withLayers(scratch, trees, func(lower []string) error { return overlay(target, lower, scratch, l) })
	if err != nil {
		return fmt.Errorf("overlay of %d layers: %w", len(l.Lower), err)
	}
	return nil
}

// withLayers runs mount with paths by which overlayfs finds trees that are mounted nowhere, or, where the kernel takes none
// such, below scratch.
func withLayers(scratch string, trees []int, mount func(lower []string) error) error {
	err := mount(detached(trees))
	if errors.Is(err, unix.EINVAL) {
		err = attached(scratch, trees, mount)
	}
	return err
}

// detached gives paths to trees that are mounted nowhere, which spares their mounts and the search for them. Linux takes
// them as layers since 6.15.
func detached(trees []int) []string {
	paths := make([]string, len(trees))
	for i, t := range trees {
		paths[i] = fmt.Sprintf("/proc/self/fd/%d", t)
	}
	return paths
}

// attached mounts the trees below scratch while do runs.
func attached(scratch string, trees []int, do func(paths []string) error) (err error) {
	defer func() {
		_, cleanup := mounts.DetachBelow(scratch)
		err = errors.Join(err, cleanup, os.RemoveAll(scratch))
	}()
	paths := make([]string, len(trees))
	for i, t := range trees {
		paths[i] = filepath.Join(scratch, fmt.Sprint(i))
		if err := os.MkdirAll(paths[i], 0o700); err != nil {
			return err
		}
		if err := unix.MoveMount(t, "", unix.AT_FDCWD, paths[i], unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount at %s: %w", paths[i], err)
		}
	}
	return do(paths)
}

// overlay mounts lower, and the upper layer of l if it has one, at target.
func overlay(target string, lower []string, scratch string, l filesystem.Layers) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	data := overlayOptions + ",lowerdir=" + strings.Join(lower, ":")
	if l.Upper != "" {
		data += ",upperdir=" + l.Upper + ",workdir=" + l.Work
	} else {
		flags |= unix.MS_RDONLY
		if len(lower) == 1 { // an overlay without an upper layer wants two: an empty one below
			empty := filepath.Join(scratch, "empty")
			if err := os.MkdirAll(empty, 0o755); err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			data += ":" + empty
		}
	}
	return unix.Mount("overlay", target, "overlay", flags, data)
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
