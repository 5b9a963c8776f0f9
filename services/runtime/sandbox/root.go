package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// rootOptions keep the upper layer plain, so that it can be read without overlayfs: no names that lead elsewhere, no
// files without content. volatile: nobody's fsync inside waits for the node's disk, because no layer outlives the machine.
const rootOptions = "redirect_dir=off,metacopy=off,index=off,xino=off,volatile"

// nodeID is how the node's root is known on a sandbox's layers: as an id that no sandbox has. overlayfs makes its own
// files as the node's root, which a mount that does not know it refuses.
const nodeID = rangeSize

// writableRoot makes the sandbox's root file system: its own layer over those of the image.
func (n *Node) writableRoot(ctx context.Context, s *Sandbox, image containerd.Image, labels map[string]string) error {
	layers, err := n.engine.Layers(ctx, s.id, image, labels)
	if err != nil {
		return err
	}
	if err := n.makeLayer(ctx, s); err != nil {
		return err
	}
	if err := os.Mkdir(s.path("root"), 0o711); err != nil {
		return err
	}
	if err := mountRoot(s.path("root"), s.path("parts"), layers, s.path("disk"), s.ids, s.spec.Isolation.RootInside); err != nil {
		return err
	}
	if err := s.furnish(); err != nil {
		return err
	}
	if err := n.holdTmp(s); err != nil {
		return err
	}
	if s.blank == nil && !s.spec.Files {
		return s.mountOwn()
	}
	return nil
}

// mountOwn makes the workspace of a sandbox without files but with a writable root: a directory of that.
func (s *Sandbox) mountOwn() error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, s.path("root", WorkspacePath), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("workspace on the sandbox's own disk: %w", err)
	}
	return attach(tree, s.workspace())
}

// mountRoot mounts the overlay at target. Each part of it shows the ids inside as those of the sandbox's range; an
// overlay itself can't. scratch is a directory for the time of the call.
func mountRoot(target, scratch string, layers []string, disk string, ids idRange, setuid bool) (err error) {
	// The overlay takes private copies of its parts' mounts; these here are not needed after it.
	defer func() {
		_, cleanup := mounts.DetachBelow(scratch)
		err = errors.Join(err, cleanup, os.RemoveAll(scratch))
	}()
	var lower []string
	var upper string
	maps := []idMap{{ContainerID: 0, HostID: int(ids.first()), Size: rangeSize}, {ContainerID: nodeID, HostID: 0, Size: 1}}
	err = withNamespaces(unix.CLONE_NEWUSER, maps, maps, func(procDir string) error {
		ns, err := unix.Open(filepath.Join(procDir, "ns", "user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(ns)
		for i, layer := range layers {
			at := filepath.Join(scratch, fmt.Sprint(i))
			if err := mountMapped(ns, layer, at, unix.MOUNT_ATTR_RDONLY); err != nil {
				return err
			}
			lower = append(lower, at)
		}
		upper = filepath.Join(scratch, "disk")
		return mountMapped(ns, disk, upper, 0)
	})
	if err != nil {
		return err
	}
	data := rootOptions + ",lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + upper + "/upper,workdir=" + upper + "/work"
	return mountRootOverlay(target, data, setuid)
}

func mountRootOverlay(target, data string, setuid bool) error {
	flags := uintptr(unix.MS_NODEV | unix.MS_NOATIME)
	if !setuid {
		flags |= unix.MS_NOSUID
	}
	if err := unix.Mount("overlay", target, "overlay", flags, data); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	return unix.Mount("", target, "", unix.MS_PRIVATE, "") // what the node mounts elsewhere has no business here
}

// mountSnapshot mounts a root that is not writable. Its upper layer takes what the container runtime makes to mount on, before it
// is read-only.
func (s *Sandbox) mountSnapshot(r containerd.Snapshotted) error {
	ns, err := unix.Open(s.path("ns", "user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	var trees []int
	defer func() {
		for _, t := range trees {
			_ = unix.Close(t)
		}
	}()
	for _, layer := range r.Lower {
		tree, err := mapped(ns, layer, unix.MOUNT_ATTR_RDONLY)
		if err != nil {
			return err
		}
		trees = append(trees, tree)
	}
	if err := os.Mkdir(s.path("root"), 0o711); err != nil {
		return err
	}
	return withLayers(s.path("parts"), trees, func(lower []string) error {
		return mountRootOverlay(s.path("root"), strings.Join(append(r.Options, "lowerdir="+strings.Join(lower, ":")), ","), s.spec.Isolation.RootInside)
	})
}

// mountMapped mounts the tree at src on dst, which is made, with the owners that the namespace says.
func mountMapped(ns int, src, dst string, attributes uint64) error {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	tree, err := mapped(ns, src, attributes)
	if err != nil {
		return err
	}
	return attach(tree, dst)
}

// mapped gives a detached copy of the tree at src with the owners that the namespace says.
func mapped(ns int, src string, attributes uint64) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, src, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, fmt.Errorf("layer %s: %w", src, err)
	}
	attr := unix.MountAttr{Attr_set: attributes | unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(ns)}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("map the owners of %s: %w", src, err)
	}
	return tree, nil
}

// root is where the container runtime finds the root file system.
func (s *Sandbox) root() *specs.Root {
	return &specs.Root{Path: s.path("root"), Readonly: !s.spec.Isolation.WritableRoot}
}

// rootDirs are in every writable root: what is a file system in memory where the root is read-only, is on the
// sandbox's own disk here, and goes with its layer.
var rootDirs = []struct {
	path    string
	mode    fs.FileMode
	payload bool
}{
	{"tmp", 0o1777, false},
	{"home/agent", 0o700, true},
	{"workspace", 0o755, true},
}

// furnish makes the directories that the image lacks. Nothing that the image or a layer has put in their way leads out.
func (s *Sandbox) furnish() error {
	root, err := os.OpenRoot(s.path("root"))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range rootDirs {
		if _, err := root.Lstat(d.path); err == nil {
			continue
		}
		owner := int(s.ids.first())
		for at := range parents(d.path) {
			err := root.Mkdir(at, 0o755)
			if err == nil {
				err = root.Lchown(at, owner, owner)
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return fault.Wrap(err, fault.Invalid, "the image can't have a directory /%s", d.path)
			}
		}
		mode := d.mode.Perm()
		if d.mode&0o1000 != 0 {
			mode |= fs.ModeSticky
		}
		if d.payload {
			owner = int(s.ids.first()) + PayloadUID
		}
		if err := errors.Join(root.Lchown(d.path, owner, owner), root.Chmod(d.path, mode)); err != nil {
			return fault.Wrap(err, fault.Invalid, "the image can't have a directory /%s", d.path)
		}
	}
	return nil
}

// holdTmp puts a file's name into /tmp: over one that is empty gVisor mounts a file system of its own in memory, which
// no quota bounds and no fork would find.
func (n *Node) holdTmp(s *Sandbox) error {
	level, err := LevelByName(s.spec.Level)
	if err != nil {
		return err
	}
	if runtime, err := n.runtimeOf(s.spec, level); err != nil || runtime != containerd.Runsc {
		return err
	}
	root, err := os.OpenRoot(s.path("root"))
	if err != nil {
		return err
	}
	defer root.Close()
	const held = "tmp/.weft"
	if err := root.Mkdir(held, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fault.Wrap(err, fault.Invalid, "the image can't have a directory /tmp")
	}
	owner := int(s.ids.first())
	return root.Lchown(held, owner, owner)
}

// parents gives a/b/c as a, a/b, a/b/c.
func parents(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range path {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
		yield(path)
	}
}

// onDisk reports whether path, a file system in memory of the level, is on the writable root instead.
func onDisk(path string) bool {
	for _, d := range rootDirs {
		if "/"+d.path == path {
			return true
		}
	}
	return false
}
