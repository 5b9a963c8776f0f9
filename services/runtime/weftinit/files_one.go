package weftinit

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

func (c *call) stat(q wire.FileQuery) error {
	var info wire.FileInfo
	err := c.act(func() (err error) { info, err = statPath(string(c.req.Path), q.NoFollow); return })
	return c.file(info, err)
}

func statPath(p string, noFollow bool) (info wire.FileInfo, err error) {
	flags := unix.O_PATH
	if noFollow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := openAt(unix.AT_FDCWD, p, flags, 0, 0)
	if err != nil {
		return info, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return info, err
	}
	info = infoOf(st, path.Base(p))
	if info.Type == wire.FileSymlink {
		info.Target = wire.Text(readlink(fd, ""))
	}
	return info, nil
}

func (c *call) read(wire.FileQuery) error {
	if c.req.Offset < 0 {
		return fault.New(fault.Invalid, "offset %d is negative", c.req.Offset)
	}
	release, err := occupy(&streams, maxStreams, "files")
	if err != nil {
		return err
	}
	defer release()
	fd := -1
	var st unix.Stat_t
	err = c.act(func() (err error) {
		fd, st, err = openRegular(unix.AT_FDCWD, string(c.req.Path), unix.O_RDONLY, 0)
		return
	})
	if err != nil {
		return c.file(wire.FileInfo{}, err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	if err := c.file(infoOf(st, path.Base(string(c.req.Path))), nil); err != nil {
		return nil
	}
	n := c.req.Length
	if n < 0 {
		n = 1<<63 - 1 - c.req.Offset
	}
	if err := c.sendFile(f, c.req.Offset, n); err != nil {
		return c.file(wire.FileInfo{}, err)
	}
	return wire.WriteFrame(c.stream, wire.TypeEOF, nil)
}

// sendFile sends what a file has from offset on, at most length bytes.
func (c *call) sendFile(f *os.File, offset, length int64) error {
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for length > 0 {
		room := (*b)[wire.HeaderSize:]
		room = room[:min(int64(len(room)), length)]
		var n int
		var err error
		block(func() { n, err = f.ReadAt(room, offset) })
		if n > 0 {
			wire.PutHeader(*b, wire.TypeData, n)
			if _, err := c.stream.Write((*b)[:wire.HeaderSize+n]); err != nil {
				return errCut
			}
			offset += int64(n)
			length -= int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write puts what comes into a file beside the target, and renames it when all of it was written.
// Whatever goes wrong before that leaves the target as it was.
func (c *call) write(q wire.FileQuery) error {
	release, err := occupy(&streams, maxStreams, "files")
	if err != nil {
		return err
	}
	defer release()
	if q.Parents {
		if err := c.act(func() error { return mkdirAll(parentOf(string(c.req.Path))) }); err != nil {
			return c.file(wire.FileInfo{}, err)
		}
	}
	var t *fresh
	err = c.act(func() error {
		dir, base, err := openParent(string(c.req.Path))
		if err != nil {
			return err
		}
		t, err = newFresh(dir, base, c.req.Mode&permBits, q.Keep)
		return err
	})
	if err != nil {
		return c.file(wire.FileInfo{}, err)
	}
	_, err = io.Copy(blockingWriter{t.f}, &frameReader{frames: c.frames})
	info, err := c.finish(t, err)
	return c.file(info, err)
}

// finish puts a fresh file in its place, or removes it if what was to be in it did not all come.
func (c *call) finish(t *fresh, failed error) (info wire.FileInfo, err error) {
	err = failed
	if aerr := c.act(func() error {
		if err == nil {
			info, err = t.place()
		}
		t.drop(err != nil)
		return nil
	}); err == nil {
		err = aerr
	}
	return info, err
}

// fresh is a file that is to take the place of another when it is complete.
type fresh struct {
	f    *os.File
	dir  int // its own from now on
	base string
	temp string
	mode uint32
	keep bool
}

// newFresh makes a file in dir, which is closed in any case. Mode 0 means that of the file that is there, else 0644.
func newFresh(dir int, base string, mode uint32, keep bool) (*fresh, error) {
	t := &fresh{dir: dir, base: base, temp: tempPrefix + schemas.NewID(), mode: mode, keep: keep}
	st, err := lstat(dir, base)
	switch {
	case err == nil && keep:
		err = unix.EEXIST
	case err == nil && kind(st) != unix.S_IFREG && kind(st) != unix.S_IFLNK:
		err = errNotRegular
	case err == unix.ENOENT:
		err = nil
	}
	if t.mode == 0 {
		t.mode = 0o644
		if kind(st) == unix.S_IFREG {
			t.mode = st.Mode & 0o777
		}
	}
	fd := -1
	if err == nil {
		fd, err = openAt(dir, t.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600, noLinks)
	}
	if err != nil {
		_ = unix.Close(dir)
		return nil, err
	}
	t.f = os.NewFile(uintptr(fd), "")
	return t, nil
}

// tempPrefix begins the name of a file that is not complete.
const tempPrefix = ".weft-"

func isTemp(name string) bool {
	return len(name) == len(tempPrefix)+schemas.IDLen && strings.HasPrefix(name, tempPrefix)
}

func (t *fresh) place() (info wire.FileInfo, err error) {
	fd := int(t.f.Fd())
	if err := unix.Fchmod(fd, t.mode); err != nil {
		return info, err
	}
	flags := uint(0)
	if t.keep {
		flags = unix.RENAME_NOREPLACE
	}
	if err := unix.Renameat2(t.dir, t.temp, t.dir, t.base, flags); err != nil {
		return info, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return infoOf(st, t.base), err
}

// drop closes it, and removes it if it has not been put in its place.
func (t *fresh) drop(remove bool) {
	_ = t.f.Close()
	if remove {
		_ = unix.Unlinkat(t.dir, t.temp, 0)
	}
	_ = unix.Close(t.dir)
}

// blockingWriter writes to a file within the bounds of what may block.
type blockingWriter struct{ f *os.File }

func (w blockingWriter) Write(b []byte) (n int, err error) {
	block(func() { n, err = w.f.Write(b) })
	return n, err
}

// append adds what comes to the end of a file, which is made if it is missing. What came before a break stays.
func (c *call) append(q wire.FileQuery) error {
	release, err := occupy(&streams, maxStreams, "files")
	if err != nil {
		return err
	}
	defer release()
	mode := c.req.Mode & permBits
	if mode == 0 {
		mode = 0o644
	}
	fd := -1
	err = c.act(func() (err error) {
		if q.Parents {
			if err := mkdirAll(parentOf(string(c.req.Path))); err != nil {
				return err
			}
		}
		fd, _, err = openRegular(unix.AT_FDCWD, string(c.req.Path), unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, mode)
		return err
	})
	if err != nil {
		return c.file(wire.FileInfo{}, err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	_, err = io.Copy(blockingWriter{f}, &frameReader{frames: c.frames})
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	return c.file(infoOf(st, path.Base(string(c.req.Path))), err)
}

func (c *call) mkdir(wire.FileQuery) error {
	return c.done(fileFault(string(c.req.Path), c.act(func() error { return mkdir(string(c.req.Path), c.req.Mode, c.req.Deep) })))
}

func mkdir(p string, mode uint32, parents bool) error {
	if parents {
		if err := mkdirAll(parentOf(p)); err != nil {
			return err
		}
	}
	dir, base, err := openParent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Mkdirat(dir, base, 0o700)
	if err == unix.EEXIST && parents {
		if info, serr := statPath(p, false); serr == nil && info.Type == wire.FileDir {
			return nil
		}
	}
	if err != nil {
		return err
	}
	fd, err := openAt(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, noLinks)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode&permBits)
}

// parentOf is the path of the directory above, "/" at the top.
func parentOf(p string) string {
	dir, _, err := split(p)
	if err != nil {
		return "/"
	}
	return dir
}

// mkdirAll makes what is missing of a path of directories; links in it are followed.
func mkdirAll(p string) error {
	cur, err := openAt(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(cur) }()
	for _, name := range elements(p) {
		if name == "" {
			continue
		}
		next, err := openAt(cur, name, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
		if err == unix.ENOENT {
			if err = unix.Mkdirat(cur, name, 0o755); err == nil || err == unix.EEXIST {
				next, err = openAt(cur, name, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
			}
		}
		if err != nil {
			return err
		}
		_ = unix.Close(cur)
		cur = next
	}
	return nil
}

func renamePath(from, to string, keep bool) error {
	a, oldName, err := openParent(from)
	if err != nil {
		return err
	}
	defer unix.Close(a)
	b, newName, err := openParent(to)
	if err != nil {
		return fileFault(to, err)
	}
	defer unix.Close(b)
	flags := uint(0)
	if keep {
		flags = unix.RENAME_NOREPLACE
	}
	return unix.Renameat2(a, oldName, b, newName, flags)
}

// touch makes a file if it is missing, and sets its time of change.
func (c *call) touch(q wire.FileQuery) error {
	var info wire.FileInfo
	at := unix.Timespec{Nsec: unix.UTIME_NOW}
	if q.Time != nil {
		var err error
		if at, err = unix.TimeToTimespec(*q.Time); err != nil {
			return fault.New(fault.Invalid, "the time is beyond what the file system can keep")
		}
	}
	err := c.act(func() error {
		p := string(c.req.Path)
		fd, err := openAt(unix.AT_FDCWD, p, unix.O_PATH, 0, 0)
		if err == unix.ENOENT {
			if fd, _, err = openRegular(unix.AT_FDCWD, p, unix.O_WRONLY|unix.O_CREAT, 0o644); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(fd), []unix.Timespec{at, at}, 0); err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		info = infoOf(st, path.Base(p))
		return err
	})
	return c.file(info, err)
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()) }
