package weftinit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	maxEntries = 100_000 // of one directory
	// permBits are what a caller may set of a mode; setuid and setgid do nothing here and are left out.
	permBits = 0o1777
)

// onFiles does the operations on files, each with the permissions of the identity that it names.
func (c *call) onFiles() error {
	r := c.req
	if r.As == nil {
		return fault.New(fault.Invalid, "operation %.40q is unknown, or lacks the identity to act as", string(r.Op))
	}
	if err := r.As.Check(); err != nil {
		return err
	}
	if err := wire.CheckPath("path", r.Path); err != nil {
		return err
	}
	path := string(r.Path)
	switch r.Op {
	case wire.OpStat:
		var info wire.FileInfo
		err := asUser(*r.As, func() (err error) { info, err = stat(path); return })
		return c.file(path, info, err)
	case wire.OpRead:
		return c.read(path)
	case wire.OpWrite:
		return c.write(path)
	case wire.OpListDir:
		return c.listDir(path)
	case wire.OpMkdir:
		return c.done(fileFault(path, asUser(*r.As, func() error { return mkdir(path, r.Mode, r.Deep) })))
	case wire.OpRemove:
		return c.done(fileFault(path, asUser(*r.As, func() error { return remove(path, r.Deep) })))
	case wire.OpRename:
		if err := wire.CheckPath("path", r.To); err != nil {
			return err
		}
		return c.done(fileFault(path, asUser(*r.As, func() error { return unix.Rename(path, string(r.To)) })))
	}
	return fault.New(fault.Invalid, "operation %.40q is unknown", string(r.Op))
}

func (c *call) file(path string, info wire.FileInfo, err error) error {
	if err != nil {
		return fileFault(path, err)
	}
	return c.reply(wire.Reply{File: &info})
}

func stat(path string) (wire.FileInfo, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return wire.FileInfo{}, err
	}
	return fileInfo(fi), nil
}

func fileInfo(fi fs.FileInfo) wire.FileInfo {
	out := wire.FileInfo{Name: wire.Text(fi.Name()), Size: fi.Size(), ModTime: fi.ModTime(), Type: wire.FileOther}
	switch t := fi.Mode().Type(); {
	case t.IsRegular():
		out.Type = wire.FileRegular
	case t.IsDir():
		out.Type = wire.FileDir
	case t&fs.ModeSymlink != 0:
		out.Type = wire.FileSymlink
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		out.UID, out.GID, out.Mode = st.Uid, st.Gid, st.Mode&0o7777
	}
	return out
}

var errNotRegular = errors.New("not a regular file")

// openRegular never hangs on a FIFO and never touches a device: it looks before it reads, and what
// it looks at is what it opened.
func openRegular(path string) (*os.File, wire.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, wire.FileInfo{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, wire.FileInfo{}, errNotRegular
	}
	f := os.NewFile(uintptr(fd), path)
	fi, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, wire.FileInfo{}, err
	}
	return f, fileInfo(fi), nil
}

func (c *call) read(path string) error {
	var f *os.File
	var info wire.FileInfo
	err := asUser(*c.req.As, func() (err error) { f, info, err = openRegular(path); return })
	if err != nil {
		return fileFault(path, err)
	}
	defer f.Close()
	if c.req.Offset < 0 {
		return fault.New(fault.Invalid, "offset %d is negative", c.req.Offset)
	}
	if err := c.reply(wire.Reply{File: &info}); err != nil {
		return nil
	}
	left := c.req.Length
	offset := c.req.Offset
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for left != 0 {
		room := (*b)[wire.HeaderSize:]
		if left > 0 && int64(len(room)) > left {
			room = room[:left]
		}
		var n int
		var err error
		block(func() { n, err = f.ReadAt(room, offset) })
		if n > 0 {
			wire.PutHeader(*b, wire.TypeData, n)
			if _, err := c.stream.Write((*b)[:wire.HeaderSize+n]); err != nil {
				return nil
			}
			offset += int64(n)
			if left > 0 {
				left -= int64(n)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fileFault(path, err)
		}
	}
	return wire.WriteFrame(c.stream, wire.TypeEOF, nil)
}

// write puts what comes into a file beside the target, and renames it when all of it was written
// and is on the disk. Whatever goes wrong before that leaves the target as it was.
func (c *call) write(path string) error {
	var f *os.File
	temp := filepath.Join(filepath.Dir(path), ".weft-"+schemas.NewID())
	err := asUser(*c.req.As, func() error {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return errNotRegular
		}
		fd, err := unix.Open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), temp)
		return nil
	})
	if err != nil {
		return fileFault(path, err)
	}
	err = c.receive(f)
	var info wire.FileInfo
	if err == nil {
		err = asUser(*c.req.As, func() (err error) {
			if err = unix.Fchmod(int(f.Fd()), c.req.Mode&permBits); err != nil {
				return err
			}
			if err = unix.Rename(temp, path); err != nil {
				return err
			}
			info, err = stat(path)
			return err
		})
	}
	_ = f.Close()
	if err != nil {
		_ = asUser(*c.req.As, func() error { return unix.Unlink(temp) })
		if errors.Is(err, errCut) {
			return nil
		}
	}
	return c.file(path, info, err)
}

var errCut = errors.New("the writer left before the end")

func (c *call) receive(f *os.File) error {
	for {
		fr, err := c.frames.Next()
		if err != nil {
			return errCut
		}
		switch fr.Type {
		case wire.TypeData:
			block(func() { _, err = f.Write(fr.Body) })
			if err != nil {
				return err
			}
		case wire.TypeEOF:
			return nil
		default:
			return errCut
		}
	}
}

func (c *call) listDir(path string) error {
	var infos []wire.FileInfo
	err := asUser(*c.req.As, func() error {
		entries, err := readDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fi, err := os.Lstat(filepath.Join(path, e))
			if err != nil {
				continue // gone meanwhile, or not to be seen
			}
			info := fileInfo(fi)
			if info.Type == wire.FileSymlink {
				target, _ := os.Readlink(filepath.Join(path, e))
				info.Target = wire.Text(target)
			}
			infos = append(infos, info)
		}
		return nil
	})
	if err != nil {
		return fileFault(path, err)
	}
	const batch = 1000
	for len(infos) > batch {
		if err := c.reply(wire.Reply{Files: infos[:batch]}); err != nil {
			return nil
		}
		infos = infos[batch:]
	}
	if err := c.reply(wire.Reply{Files: infos}); err != nil {
		return nil
	}
	return wire.WriteFrame(c.stream, wire.TypeEOF, nil)
}

func readDir(path string) ([]string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), path)
	defer d.Close()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxEntries {
		return nil, fault.New(fault.Exhausted, "%s has more than %d entries; list it with a command", path, maxEntries)
	}
	slices.Sort(names)
	return names, nil
}

func mkdir(path string, mode uint32, parents bool) error {
	if parents {
		if parent := filepath.Dir(path); parent != "/" {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return err
			}
		}
		if fi, err := os.Stat(path); err == nil && fi.IsDir() {
			return nil
		}
	}
	if err := unix.Mkdir(path, mode&permBits); err != nil {
		return err
	}
	return unix.Chmod(path, mode&permBits)
}

func remove(path string, deep bool) error {
	if strings.Trim(path, "/.") == "" {
		return fault.New(fault.Invalid, "the root is not removed")
	}
	if !deep {
		return os.Remove(path)
	}
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// fileFault gives an error of the file system the code that its caller can act on.
func fileFault(path string, err error) error {
	var f *fault.Error
	code := fault.Internal
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, errNotRegular):
		return fault.New(fault.Invalid, "%.200q is not a regular file", path)
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		code = fault.Denied
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EBUSY):
		code = fault.Conflict
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO):
		code = fault.Invalid
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EMFILE):
		code = fault.Exhausted
	}
	return fault.Wrap(err, code, "%.200q: %s", path, errText(err))
}
