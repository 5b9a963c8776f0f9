package weftinit

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Everything here runs inside asUser. Magic links of /proc are never followed: /proc/self is process 1
// for these threads, and its own descriptors are open to them whatever their user.

const noLinks = unix.RESOLVE_NO_SYMLINKS

// openAt opens path below dir. It never waits: not for a FIFO's other end, nor for a lease that
// somebody holds on the file (EAGAIN).
func openAt(dir int, path string, flags int, mode uint32, resolve uint64) (int, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, path, &how)
		// RESOLVE_BENEATH gives EAGAIN when something is renamed meanwhile.
		if tries < 64 && (err == unix.EINTR || err == unix.EAGAIN && resolve&unix.RESOLVE_BENEATH != 0) {
			continue
		}
		if err == unix.EAGAIN {
			err = errHeld
		}
		if err == nil && flags&unix.O_PATH == 0 && ofSelf(fd) {
			_ = unix.Close(fd)
			return -1, unix.EACCES
		}
		return fd, err
	}
}

// ofSelf says that an open file is one of those that /proc has of process 1. To its own threads the kernel shows
// what it refuses to all others of their user: the memory map, the descriptors.
func ofSelf(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || int64(fs.Type) != unix.PROC_SUPER_MAGIC {
		return false
	}
	return strings.HasPrefix(readlink(unix.AT_FDCWD, fdPath(fd)), ownProc)
}

var ownProc = "/proc/" + strconv.Itoa(os.Getpid()) + "/"

var errHeld = fault.New(fault.Conflict, "a lease is held on the file; try again")

// split parts a path into where its last element is, and that element. Slashes at the end do not count.
func split(path string) (dir, base string, err error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", "", fault.New(fault.Invalid, "the root itself is not to be changed")
	}
	dir, base = path[:i+1], path[i+1:]
	if base == "." || base == ".." {
		return "", "", fault.New(fault.Invalid, "%.200q ends in %s; name the file itself", path, base)
	}
	return dir, base, nil
}

// openParent opens the directory that path's last element is in; links above that are followed. The caller closes it.
func openParent(path string) (dir int, base string, err error) {
	above, base, err := split(path)
	if err != nil {
		return -1, "", err
	}
	dir, err = openAt(unix.AT_FDCWD, above, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	return dir, base, err
}

// openRegular opens a regular file and looks at what it opened. It looks before, too: opening alone may have an effect
// on what is no regular file.
func openRegular(dir int, path string, flags int, mode uint32) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	look, err := openAt(dir, path, unix.O_PATH|flags&unix.O_NOFOLLOW, 0, 0)
	if err == nil {
		err = unix.Fstat(look, &st)
		_ = unix.Close(look)
		if err == nil && kind(st) != unix.S_IFREG {
			err = errNotRegular
		}
	} else if err == unix.ENOENT && flags&unix.O_CREAT != 0 {
		err = nil
	}
	if err != nil {
		return -1, st, err
	}
	fd, err := openAt(dir, path, flags, mode, 0)
	if err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err == nil && kind(st) != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

var errNotRegular = errors.New("not a regular file")

func kind(st unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// lstat looks at name in dir and follows no link.
func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

func readlink(dir int, name string) string {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// fdPath is a path of an open file that leads to it and nowhere else.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// chmodAt changes the mode of name in dir, of exactly what it finds there; links have none.
func chmodAt(dir int, name string, mode uint32) error {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return chmodFD(fd, mode)
}

func chmodFD(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || kind(st) == unix.S_IFLNK {
		return err
	}
	// fchmod refuses a descriptor of O_PATH, and only such can be had of a file that must not be read.
	return unix.Chmod(fdPath(fd), mode&permBits)
}

func infoOf(st unix.Stat_t, name string) wire.FileInfo {
	out := wire.FileInfo{Name: wire.Text(name), Size: st.Size, ModTime: timeOf(st.Mtim), Type: wire.FileOther, UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777}
	switch kind(st) {
	case unix.S_IFREG:
		out.Type = wire.FileRegular
	case unix.S_IFDIR:
		out.Type = wire.FileDir
	case unix.S_IFLNK:
		out.Type = wire.FileSymlink
	}
	return out
}
