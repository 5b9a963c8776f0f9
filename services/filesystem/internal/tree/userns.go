package tree

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// idmaps hands out user namespaces whose only use is to say how ids on disk become ids on the host. One is kept for
// each range of ids, because making one costs a fork.
type idmaps struct {
	mu  sync.Mutex
	fds map[uint32]int // by first host id
}

// keepMaps bounds the descriptors that are kept.
const keepMaps = 128

// withMap calls fn with the descriptor of the namespace for the range that begins at host id base.
func (m *idmaps) withMap(base uint32, fn func(fd int) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fd, ok := m.fds[base]
	if !ok {
		var err error
		if fd, err = newIDMap(base); err != nil {
			return fmt.Errorf("id map for host id %d: %w", base, err)
		}
		for b, old := range m.fds {
			if len(m.fds) < keepMaps {
				break
			}
			_ = unix.Close(old)
			delete(m.fds, b)
		}
		if m.fds == nil {
			m.fds = map[uint32]int{}
		}
		m.fds[base] = fd
	}
	return fn(fd)
}

func (m *idmaps) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fd := range m.fds {
		_ = unix.Close(fd)
	}
	m.fds = nil
}

// newIDMap makes the namespace: ids on disk on its inside, ids on the host on its outside. Id 0 maps to itself: overlayfs makes its
// work directory and whiteouts as root, which would be refused on a mount that has no root.
func newIDMap(base uint32) (int, error) {
	maps := []syscall.SysProcIDMap{
		{ContainerID: 0, HostID: 0, Size: 1},
		{ContainerID: OwnerBase, HostID: int(base), Size: idRange},
	}
	// The child is traced, so it stops at its exec and never runs; only this thread may trace it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"weft-idmap"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps,
		Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return -1, err
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_ = p.Kill()
	_, _ = p.Wait()
	return fd, err
}

// mountMapped mounts the tree at src on dst, seen through the id map.
func mountMapped(userns int, src, dst string, readonly bool) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, src, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("clone %s: %w", src, err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(userns)}
	if readonly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("idmap %s (its filesystem must support idmapped mounts): %w", src, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", dst, err)
	}
	return nil
}
