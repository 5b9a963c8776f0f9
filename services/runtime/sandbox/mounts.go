package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/mounts"
)

// shareBase makes dir a mount of its own that passes on what is mounted below it, so that a workspace
// that comes late appears in a sandbox that already runs. It is done once; again changes nothing.
func shareBase(dir string) error {
	points, err := mounts.Below(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(points, dir) {
		if err := mountBase(dir); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	// Private first: not a peer of what it was bound from, or the mounts would show up twice.
	for _, flag := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if len(points) > 0 && slices.Contains(points, dir) && flag == unix.MS_PRIVATE {
			continue // making it private would cut off the sandboxes that run
		}
		if err := unix.Mount("", dir, "", flag, ""); err != nil {
			return fmt.Errorf("share %s: %w", dir, err)
		}
	}
	return nil
}

// mountBase makes a mount of dir: a file system in memory where it does not lie on one already, as /run does on most
// machines. What is there does not outlive a boot, and a claim writes a dozen small files, each of which costs a third of a
// millisecond on a disk that others flush meanwhile. A directory that was left by an earlier boot is kept in sight, to be cleaned.
func mountBase(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC || len(entries) > 0 {
		return unix.Mount(dir, dir, "", unix.MS_BIND, "")
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0711")
}

// UnmountBelow takes away every mount below dir: what containerd had not undone when it was ended.
func UnmountBelow(dir string) error {
	_, err := mounts.DetachBelow(dir)
	return err
}

// mountMemory makes an empty tmpfs for what must never be on a disk. It is never swapped where the
// kernel can promise that.
func mountMemory(dir string) error {
	data := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0711", maxSecretBytes+maxKeptBytes, 2*maxSecretFiles+8)
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("tmpfs", dir, "tmpfs", flags, data+",noswap")
	if errors.Is(err, unix.EINVAL) { // before Linux 6.4
		err = unix.Mount("tmpfs", dir, "tmpfs", flags, data)
	}
	if err != nil {
		return fmt.Errorf("memory of the sandbox: %w", err)
	}
	return nil
}

// idMapped gives a detached copy of the mount at path on which owners are mapped by m; every other owner shows as nobody,
// and nobody can become one.
func (o *owners) idMapped(path string, m ownerMap, readOnly bool) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, fmt.Errorf("workspace %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if m.uid == m.to && m.gid == m.to {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
	} else {
		err = o.with(m, func(fd int) error {
			attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
			attr.Userns_fd = uint64(fd)
			return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
		})
	}
	if err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("map the owner of %s: %w", path, err)
	}
	return tree, nil
}

// attach puts a detached mount at target.
func attach(tree int, target string) error {
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", target, err)
	}
	return nil
}

// isMounted reports whether something is mounted at path itself.
func isMounted(path string) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &st); err != nil {
		return false, fmt.Errorf("mount at %s: %w", path, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 { // since Linux 5.8, and however much is mounted
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	points, err := mounts.Below(path)
	return slices.Contains(points, path), err
}

// mountScratch makes the workspace of a sandbox without files: a tmpfs, which counts as its memory, unless its root
// is writable.
func (s *Sandbox) mountScratch() error {
	if s.spec.Isolation.WritableRoot {
		if err := s.mountOwn(); err != nil {
			return err
		}
		return s.show()
	}
	r := s.spec.Resources
	data := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d,uid=%d,gid=%d", r.DiskBytes, max(1024, r.DiskBytes>>12), s.HostUID(), s.HostUID())
	if err := unix.Mount("tmpfs", s.workspace(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("workspace in memory: %w", err)
	}
	return s.show()
}
