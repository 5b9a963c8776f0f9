package weftinit

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// copy makes a copy of a file or tree at To. Into a directory that is there a tree is merged; links are copied as
// such; FIFOs, sockets and devices are skipped.
func (c *call) copy(q wire.FileQuery) error {
	t, err := c.named()
	if err != nil {
		return c.answer(wire.Count{}, err)
	}
	defer t.close()
	if q.Parents {
		if err := c.act(func() error { return mkdirAll(parentOf(string(c.req.To))) }); err != nil {
			return fileFault(string(c.req.To), err)
		}
	}
	n, err := c.copyTop(c.leaving(), &t, q.Keep, false)
	return c.answer(n, err)
}

// copyTop copies what t names to the request's target. With move, the copy takes over the time of change, too.
func (c *call) copyTop(left <-chan struct{}, t *top, keep, move bool) (n wire.Count, err error) {
	var s *sink
	var w *walker
	base := ""
	err = c.act(func() error {
		dir, name, err := openParent(string(c.req.To))
		if err != nil {
			return fileFault(string(c.req.To), err)
		}
		s, base = newSink(dir), name
		st, err := lstat(dir, name)
		switch {
		case err == nil && (keep || move && kind(st) == unix.S_IFDIR):
			return fileFault(string(c.req.To), unix.EEXIST)
		case err == nil && st.Dev == t.st.Dev && st.Ino == t.st.Ino:
			return fault.New(fault.Invalid, "source and target are the same")
		}
		if !t.isDir() {
			return nil
		}
		if err := s.mkdir(base, t.st.Mode&permBits); err != nil {
			return err
		}
		n.Dirs++
		w, err = t.walker(walker{sorted: true, strict: move})
		return err
	})
	if s != nil {
		defer s.close()
	}
	if err != nil {
		if w != nil {
			w.close()
		}
		return n, err
	}
	cp := &copier{c: c, s: s, left: left, move: move, n: &n}
	if !t.isDir() {
		if err := c.act(func() error { return cp.visit(entry{dir: t.dir, name: t.base, st: t.st}, base) }); err != nil && !errors.Is(err, errPause) {
			return n, err
		}
		if n.Skipped > 0 {
			return n, fault.New(fault.Invalid, "%.200q is no file that can be read and copied", string(c.req.Path))
		}
		return n, cp.data()
	}
	if cp.avoid, err = c.inode(s, base); err != nil {
		w.close()
		return n, err
	}
	err = c.walk(left, w, func(e entry) error {
		if e.st.Dev == cp.avoid.Dev && e.st.Ino == cp.avoid.Ino {
			w.skip() // the copy itself, in the tree that is copied
			return nil
		}
		return cp.visit(e, base+"/"+string(w.relative(e.name)))
	}, cp.data)
	n.Skipped += w.skipped
	if err == nil {
		err = c.act(s.settle)
	}
	return n, err
}

// inode is what a new directory in the sink is.
func (c *call) inode(s *sink, name string) (st unix.Stat_t, err error) {
	err = c.act(func() (err error) { st, err = lstat(s.top, name); return })
	return st, err
}

// copier copies entries. The bytes of a file are copied after the slice of the walk that opened it.
type copier struct {
	c        *call
	s        *sink
	n        *wire.Count
	left     <-chan struct{}
	move     bool
	avoid    unix.Stat_t
	from, to *os.File
	time     unix.Timespec
}

func (k *copier) visit(e entry, to string) error {
	switch kind(e.st) {
	case unix.S_IFDIR:
		k.n.Dirs++
		return at(to, k.s.mkdir(to, e.st.Mode&permBits))
	case unix.S_IFLNK:
		k.n.Links++
		return at(to, k.s.symlink(readlink(e.dir, e.name), to))
	case unix.S_IFREG:
		fd, st, err := openRegular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		switch {
		case err == unix.ENOENT, err == unix.ELOOP, errors.Is(err, errNotRegular):
			return nil // it is gone, or another
		case errors.Is(err, unix.EACCES) && !k.move:
			k.n.Skipped++
			return nil
		case err != nil:
			return at(e.name, err)
		}
		k.from, k.time = os.NewFile(uintptr(fd), ""), st.Mtim
		if k.to, err = k.s.create(to, st.Mode); err != nil {
			_ = k.from.Close()
			k.from = nil
			return at(to, err)
		}
		return errPause
	}
	k.n.Skipped++
	return nil
}

// at says at which path an error of the file system was.
func at(p string, err error) error {
	if err == nil {
		return nil
	}
	return fileFault(p, err)
}

// data copies the bytes of the file that was opened last.
func (k *copier) data() error {
	if k.from == nil {
		return nil
	}
	from, to := k.from, k.to
	k.from, k.to = nil, nil
	defer from.Close()
	n, err := copySparse(to, from, k.left)
	k.n.Bytes += n
	k.n.Files++
	if err == nil && k.move {
		err = k.c.act(func() error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(int(to.Fd())), []unix.Timespec{k.time, k.time}, 0)
		})
	}
	return errors.Join(err, to.Close())
}

// copySparse copies what a file has, and leaves out what it has not.
func copySparse(to, from *os.File, left <-chan struct{}) (copied int64, err error) {
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	end, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	for at := int64(0); at < end; {
		select {
		case <-left:
			return copied, errCut
		default:
		}
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			data = at // a file system that does not know
		}
		var n int
		block(func() {
			if n, err = from.ReadAt((*b)[:min(int64(len(*b)), end-data)], data); n > 0 {
				_, err = to.WriteAt((*b)[:n], data)
			}
		})
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			break // it became shorter
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return copied, err
		}
		copied, at = copied+int64(n), data+int64(n)
	}
	return copied, to.Truncate(end)
}
