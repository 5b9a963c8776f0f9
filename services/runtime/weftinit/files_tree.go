package weftinit

import (
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// top is what a path names, in an open directory: the start of an operation on it and all below.
type top struct {
	dir  int
	base string
	st   unix.Stat_t
}

// named finds what the request names and follows no link at the end of it.
func (c *call) named() (t top, err error) {
	t.dir = -1
	err = c.act(func() (err error) {
		if t.dir, t.base, err = openParent(string(c.req.Path)); err == nil {
			t.st, err = lstat(t.dir, t.base)
		}
		return err
	})
	if err != nil {
		t.close()
	}
	return t, err
}

func (t *top) close() {
	if t.dir >= 0 {
		_ = unix.Close(t.dir)
		t.dir = -1
	}
}

func (t *top) isDir() bool { return kind(t.st) == unix.S_IFDIR }

// walker goes through what is below. It runs inside asUser.
func (t *top) walker(w walker) (*walker, error) {
	fd, err := openAt(t.dir, t.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, noLinks)
	if err != nil {
		return nil, err
	}
	return walkFrom(fd, w)
}

// remove deletes a file, an empty directory, or with Deep all that is below one. Links are removed, not followed. It
// stops at the first thing that can't be removed.
func (c *call) remove(wire.FileQuery) error {
	t, err := c.named()
	if err != nil {
		return fileFault(string(c.req.Path), err)
	}
	defer t.close()
	left := c.leaving()
	n, err := c.removeTop(left, &t, c.req.Deep)
	if err == nil {
		return c.reply(wire.Reply{Tree: &wire.Tree{Count: &n}})
	}
	return c.answer(n, err)
}

func (c *call) removeTop(left <-chan struct{}, t *top, deep bool) (n wire.Count, err error) {
	if t.isDir() && deep {
		var w *walker
		if err := c.act(func() (err error) { w, err = t.walker(walker{post: true, strict: true}); return }); err != nil {
			return n, err
		}
		if err := c.walk(left, w, func(e entry) error { return w.remove(e, &n) }, nil); err != nil {
			return n, err
		}
	}
	flag := 0
	if t.isDir() {
		flag = unix.AT_REMOVEDIR
		n.Dirs++
	} else {
		n.Files++
	}
	return n, c.act(func() error { return unix.Unlinkat(t.dir, t.base, flag) })
}

func (w *walker) remove(e entry, n *wire.Count) error {
	var err error
	switch {
	case e.leave:
		n.Dirs++
		err = unix.Unlinkat(e.dir, e.name, unix.AT_REMOVEDIR)
	case kind(e.st) == unix.S_IFDIR:
		return nil
	default:
		n.Files++
		err = unix.Unlinkat(e.dir, e.name, 0)
	}
	if err == unix.ENOENT {
		return nil // somebody else was faster
	}
	if err != nil {
		return fileFault(string(w.relative(e.name)), err)
	}
	return nil
}

// chmod changes the mode of what the path names, following a link there; with Deep of all below, no links.
func (c *call) chmod(q wire.FileQuery) error {
	var n wire.Count
	var w *walker
	err := c.act(func() error {
		flags := unix.O_PATH
		if c.req.Deep || q.NoFollow {
			flags |= unix.O_NOFOLLOW
		}
		fd, err := openAt(unix.AT_FDCWD, string(c.req.Path), flags, 0, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := chmodFD(fd, c.req.Mode); err != nil {
			return err
		}
		n.Files++
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || kind(st) != unix.S_IFDIR || !c.req.Deep {
			return err
		}
		top, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
		if err != nil {
			return err
		}
		w, err = walkFrom(top, walker{strict: true, sorted: true})
		return err
	})
	if err == nil && w != nil {
		err = c.walk(c.leaving(), w, func(e entry) error {
			if kind(e.st) == unix.S_IFLNK {
				return nil
			}
			n.Files++
			if err := chmodAt(e.dir, e.name, c.req.Mode); err != nil && err != unix.ENOENT {
				return fileFault(string(w.relative(e.name)), err)
			}
			return nil
		}, nil)
	}
	return c.answer(n, err)
}

// move renames, and where source and target are on different file systems copies and then removes. Until the
// copy is complete the source stays whole.
func (c *call) move(q wire.FileQuery) error {
	if q.Parents {
		if err := c.act(func() error { return mkdirAll(parentOf(string(c.req.To))) }); err != nil {
			return fileFault(string(c.req.To), err)
		}
	}
	err := c.act(func() error { return renamePath(string(c.req.Path), string(c.req.To), q.Keep) })
	if err == nil {
		return c.answer(wire.Count{}, nil)
	}
	if err != unix.EXDEV {
		return fileFault(string(c.req.Path), err)
	}
	t, err := c.named()
	if err != nil {
		return c.answer(wire.Count{}, err)
	}
	defer t.close()
	left := c.leaving()
	n, err := c.copyTop(left, &t, q.Keep, true)
	if err == nil && n.Skipped > 0 {
		err = fault.New(fault.Conflict, "%d files can't be copied to the other file system (FIFOs, sockets, devices, or not readable); both trees stay", n.Skipped)
	}
	if err == nil {
		_, err = c.removeTop(left, &t, true)
	}
	return c.answer(n, err)
}
