package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/fault"
)

// maxTreeDepth bounds how deep a layer may nest: each level holds two descriptors open while it is copied.
const maxTreeDepth = 1000

// treeCopy copies a layer with all that overlayfs knows of it: owners, modes, times, attributes, hard links, holes,
// whiteouts. It works with descriptors and follows no link, so a tree that changes meanwhile leads it nowhere else.
type treeCopy struct {
	ctx   context.Context
	dst   int               // the copy's root
	links map[uint64]string // files of several names: where in the copy the first is
}

// copyTree copies what is in the directory src into the directory dst, which is empty and nobody else's.
func copyTree(ctx context.Context, src, dst string) error {
	from, err := openDir(unix.AT_FDCWD, src)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, "the writable layer to start with can't be read")
	}
	defer unix.Close(from)
	to, err := openDir(unix.AT_FDCWD, dst)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	c := &treeCopy{ctx: ctx, dst: to, links: map[uint64]string{}}
	err = c.dir(from, to, "", 0)
	if errors.Is(err, unix.ENOSPC) {
		return fault.Wrap(err, fault.Exhausted, "the writable layer to start with is larger than the sandbox's disk; raise disk_bytes")
	}
	return err
}

func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// dir copies what is in from, and then what is known of from itself.
func (c *treeCopy) dir(from, to int, path string, depth int) error {
	if depth > maxTreeDepth {
		return fault.New(fault.Invalid, "the writable layer nests deeper than %d directories", maxTreeDepth)
	}
	listing, err := openDir(from, ".")
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(listing), path)
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.entry(from, to, name, filepath.Join(path, name), depth); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	return meta(from, to, st)
}

func (c *treeCopy) entry(from, to int, name, path string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.subdir(from, to, name, path, depth)
	case unix.S_IFREG:
		return c.file(from, to, name, path)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, target)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(target[:n]), to, name); err != nil {
			return err
		}
	case unix.S_IFIFO:
		if err := unix.Mknodat(to, name, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return nil // none that a payload can have made
		}
		if err := unix.Mknodat(to, name, unix.S_IFCHR, 0); err != nil {
			return err
		}
	default:
		return nil // a socket means nothing without who listens
	}
	return named(to, name, st)
}

func (c *treeCopy) subdir(from, to int, name, path string, depth int) error {
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	src, err := openDir(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	dst, err := openDir(to, name)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	return c.dir(src, dst, path, depth+1)
}

func (c *treeCopy) file(from, to int, name, path string) error {
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), name)
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(err, errors.New("it is no file any more"))
	}
	if first, ok := c.links[st.Ino]; ok {
		return unix.Linkat(c.dst, first, to, name, 0)
	}
	if st.Nlink > 1 {
		c.links[st.Ino] = path
	}
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(out), name)
	err = diskimage.CopyData(dst, src, st.Size)
	return errors.Join(err, meta(fd, out, st), dst.Close())
}

// meta gives to what is known of from, both open.
func meta(from, to int, st unix.Stat_t) error {
	if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil { // after the owner, whose change drops setuid
		return err
	}
	if err := attributes(from, to); err != nil {
		return err
	}
	times := []unix.Timeval{unix.NsecToTimeval(st.Atim.Nano()), unix.NsecToTimeval(st.Mtim.Nano())}
	return unix.Futimes(to, times)
}

// named is meta for what can't be opened.
func named(to int, name string, st unix.Stat_t) error {
	if err := unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// attributes copies the extended ones: those of overlayfs, of access lists, of file capabilities, and the user's.
func attributes(from, to int) error {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if name == "" {
			continue
		}
		n, err := unix.Fgetxattr(from, name, value)
		if err != nil {
			return err
		}
		if err := unix.Fsetxattr(to, name, value[:n], 0); err != nil {
			return err
		}
	}
	return nil
}
