// Package dirs opens directory trees that somebody else has written, or that must end up exactly as
// told, one name at a time. A Dir is an open directory; each of its methods takes the name of an entry in it, never a
// path, and never follows a symlink, crosses a mount, or waits on a FIFO: the kernel is asked with openat2 and
// O_NOFOLLOW. So whatever a sandbox does to its tree while it is read, nothing outside of it is reached.
package dirs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that an entry that was to be read is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

// beneath is what every open of an entry asks of the kernel.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Dir is an open directory. It is not for use by several goroutines while it is being closed.
type Dir struct{ f *os.File }

// Open opens a directory by a path of our own: one that is built from validated identifiers. Its last
// component must not be a symlink.
func Open(path string) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &Dir{os.NewFile(uintptr(fd), path)}, nil
}

// Close closes it.
func (d *Dir) Close() error { return d.f.Close() }

// FD is the descriptor, valid until Close.
func (d *Dir) FD() int { return int(d.f.Fd()) }

// CheckName refuses what is not the name of one entry.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not the name of a directory entry", name)
	}
	return nil
}

// fail names the operation and the entry of an error.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

func (d *Dir) openat(name string, flags int, mode uint64) (int, error) {
	if err := CheckName(name); err != nil {
		return -1, err
	}
	for {
		fd, err := unix.Openat2(d.FD(), name, &unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Mode: mode, Resolve: beneath})
		// EAGAIN: a rename raced with the check that we stay beneath; the kernel asks us to try again.
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, fail("open", name, err)
	}
}

// Sub opens a directory in d.
func (d *Dir) Sub(name string) (*Dir, error) {
	fd, err := d.openat(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{os.NewFile(uintptr(fd), name)}, nil
}

// OpenFile opens a regular file for reading, ErrNotRegular if it is something else by now.
func (d *Dir) OpenFile(name string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	// O_NONBLOCK, or the open of a FIFO that was put there meanwhile waits for a writer.
	fd, err := d.openat(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
			return nil, st, fail("open", name, ErrNotRegular)
		}
		return nil, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, st, fail("fstat", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, st, fail("open", name, ErrNotRegular)
	}
	return os.NewFile(uintptr(fd), name), st, nil
}

// Create makes a file that must not exist.
func (d *Dir) Create(name string) (*os.File, error) {
	fd, err := d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Stat is lstat.
func (d *Dir) Stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := CheckName(name); err != nil {
		return st, err
	}
	return st, fail("lstat", name, unix.Fstatat(d.FD(), name, &st, unix.AT_SYMLINK_NOFOLLOW))
}

// Readlink gives a symlink's target as it is stored, at most 4096 bytes.
func (d *Dir) Readlink(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.FD(), name, buf)
	if err != nil {
		return "", fail("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// Names lists at most limit entries, in no order. more says that there are others.
func (d *Dir) Names(limit int) (names []string, more bool, err error) {
	// A descriptor of its own, so that the position is always the beginning.
	fd, err := unix.Openat(d.FD(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fail("open", d.f.Name(), err)
	}
	f := os.NewFile(uintptr(fd), d.f.Name())
	defer f.Close()
	names, err = f.Readdirnames(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(names) > limit {
		names, more = names[:limit], true
	}
	return names, more, err
}

// Xattr gives an extended attribute of d itself, empty if there is none.
func (d *Dir) Xattr(attr string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Fgetxattr(d.FD(), attr, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err != nil {
		return "", fail("getxattr", attr, err)
	}
	return string(buf[:n]), nil
}

// Mkdir makes a directory, 0700 until Meta says otherwise, and opens it.
func (d *Dir) Mkdir(name string) (*Dir, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(d.FD(), name, 0o700); err != nil {
		return nil, fail("mkdir", name, err)
	}
	return d.Sub(name)
}

// Symlink makes a symlink whose target is stored as it is.
func (d *Dir) Symlink(target, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return fail("symlink", name, unix.Symlinkat(target, d.FD(), name))
}

// Whiteout makes what hides an entry of a lower overlay layer: the character device 0:0.
func (d *Dir) Whiteout(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return fail("mknod", name, unix.Mknodat(d.FD(), name, unix.S_IFCHR, 0))
}

// Rename gives the entry old of d another name in d.
func (d *Dir) Rename(old, name string) error {
	if err := errors.Join(CheckName(old), CheckName(name)); err != nil {
		return err
	}
	return fail("rename", name, unix.Renameat(d.FD(), old, d.FD(), name))
}

// Own sets who owns an entry, itself and not what it points to.
func (d *Dir) Own(name string, uid, gid uint32) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return fail("chown", name, unix.Fchownat(d.FD(), name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW))
}

// Chtimes sets an entry's modification time, its own and not that of what it points to.
func (d *Dir) Chtimes(name string, mtime time.Time) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return fail("utimes", name, unix.UtimesNanoAt(d.FD(), name, stamp(mtime), unix.AT_SYMLINK_NOFOLLOW))
}

// ChtimesSelf sets d's own modification time.
func (d *Dir) ChtimesSelf(mtime time.Time) error {
	return fail("utimes", d.f.Name(), unix.UtimesNanoAt(d.FD(), ".", stamp(mtime), 0))
}

// MetaSelf sets d's own owner and permission bits.
func (d *Dir) MetaSelf(mode, uid, gid uint32) error {
	if err := unix.Fchown(d.FD(), int(uid), int(gid)); err != nil {
		return fail("chown", d.f.Name(), err)
	}
	return fail("chmod", d.f.Name(), unix.Fchmod(d.FD(), mode))
}

func stamp(t time.Time) []unix.Timespec {
	ts := unix.NsecToTimespec(t.UnixNano())
	return []unix.Timespec{ts, ts}
}
