package weftinit

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// tarOut sends a directory as tar, or one file: files, directories and links, with modes and times, without owners. A file
// that shrinks while it is read is filled up with zeros; a sparse one is sent in full.
func (c *call) tarOut(wire.FileQuery) error {
	release, err := occupy(&streams, maxStreams, "files")
	if err != nil {
		return err
	}
	defer release()
	t := &tarrer{c: c, w: tar.NewWriter(frameWriter{c})}
	err = c.act(func() error {
		fd, st, err := openRegular(unix.AT_FDCWD, string(c.req.Path), unix.O_RDONLY, 0)
		if err == nil {
			t.file, t.header = fd, header(st, path.Base(string(c.req.Path)))
			return nil
		}
		if !errors.Is(err, errNotRegular) {
			return err
		}
		if fd, err = openAt(unix.AT_FDCWD, string(c.req.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0, 0); err != nil {
			return err
		}
		t.walk, err = walkFrom(fd, walker{sorted: true})
		return err
	})
	if err != nil {
		return c.answer(wire.Count{}, err)
	}
	if err := c.reply(wire.Reply{}); err != nil {
		t.close()
		return nil
	}
	if err = t.run(c.leaving()); err == nil {
		err = t.w.Close()
	}
	if err == nil && wire.WriteFrame(c.stream, wire.TypeEOF, nil) != nil {
		err = errCut
	}
	return c.answer(t.n, err)
}

type tarrer struct {
	c      *call
	w      *tar.Writer
	walk   *walker
	n      wire.Count
	header *tar.Header // of what is to be sent next
	file   int         // its bytes, if header is of a regular file
}

func (t *tarrer) close() {
	if t.walk != nil {
		t.walk.close()
	}
	if t.header != nil && t.header.Typeflag == tar.TypeReg {
		_ = unix.Close(t.file)
	}
}

func (t *tarrer) run(left <-chan struct{}) error {
	defer t.close()
	if t.walk == nil {
		return t.send()
	}
	err := t.c.walkFree(left, t.walk, func(e entry) error {
		name := t.walk.relative(e.name)
		if len(name) > wire.MaxRelative {
			t.n.Skipped++
			return nil
		}
		return t.visit(e, string(name))
	}, t.send)
	t.n.Skipped += t.walk.skipped
	return err
}

func (t *tarrer) visit(e entry, name string) error {
	switch kind(e.st) {
	case unix.S_IFDIR:
		t.header = header(e.st, name+"/")
		t.header.Typeflag = tar.TypeDir
		t.n.Dirs++
	case unix.S_IFLNK:
		t.header = header(e.st, name)
		t.header.Typeflag, t.header.Size = tar.TypeSymlink, 0
		t.header.Linkname = readlink(e.dir, e.name)
		t.n.Links++
	case unix.S_IFREG:
		fd, st, err := openRegular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			t.n.Skipped++
			return nil
		}
		t.file, t.header = fd, header(st, name)
	default:
		t.n.Skipped++
		return nil
	}
	return errPause
}

func header(st unix.Stat_t, name string) *tar.Header {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(st.Mode & permBits), ModTime: timeOf(st.Mtim), Format: tar.FormatPAX}
	if kind(st) == unix.S_IFREG {
		h.Size = st.Size
	}
	return h
}

// send writes what was visited last.
func (t *tarrer) send() error {
	h := t.header
	if t.header = nil; h == nil {
		return nil
	}
	if h.Typeflag != tar.TypeReg {
		return t.w.WriteHeader(h)
	}
	defer unix.Close(t.file)
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	t.n.Files++
	t.n.Bytes += h.Size
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for at := int64(0); at < h.Size; {
		room := (*b)[:min(int64(len(*b)), h.Size-at)]
		var n int
		var err error
		block(func() { n, err = unix.Pread(t.file, room, at) })
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			clear(room)
			n = len(room)
		}
		if _, err := t.w.Write(room[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// tarIn unpacks the tar that comes below a directory, which is made if it is missing. It stops at the first thing
// that it refuses or that fails; what came before stays.
func (c *call) tarIn(wire.FileQuery) error {
	release, err := occupy(&streams, maxStreams, "files")
	if err != nil {
		return err
	}
	defer release()
	u := &untarrer{c: c}
	err = c.act(func() error {
		p := string(c.req.Path)
		if err := mkdirAll(p); err != nil {
			return err
		}
		fd, err := openAt(unix.AT_FDCWD, p, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
		u.s = newSink(fd)
		return err
	})
	if err == nil {
		err = u.run(&frameReader{frames: c.frames})
		if serr := c.act(u.s.settle); err == nil {
			err = serr
		}
		u.s.close()
	}
	return c.answer(u.n, err)
}

type untarrer struct {
	c *call
	s *sink
	n wire.Count
}

func (u *untarrer) run(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r) // what pads the end
			return err
		}
		if errors.Is(err, errCut) {
			return err
		}
		if err != nil {
			return fault.New(fault.Invalid, "after %d files: this is no tar that can be read (%v)", u.n.Files, err)
		}
		if err := u.one(h, t); err != nil {
			return err
		}
	}
}

// one unpacks one thing.
func (u *untarrer) one(h *tar.Header, r io.Reader) error {
	name, err := tarName("name", h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "" || h.PAXRecords["GNU.sparse.size"] != "" {
		return fault.New(fault.Invalid, "%.200q is a sparse file: pack it without", name)
	}
	mode := uint32(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case tar.TypeDir:
		if name == "" {
			return nil
		}
		u.n.Dirs++
		return at(name, u.c.act(func() error { return u.s.mkdir(name, mode) }))
	case tar.TypeReg:
		return u.file(name, mode, h, r)
	case tar.TypeSymlink:
		if err := tarTarget(name, h.Linkname); err != nil {
			return err
		}
		u.n.Links++
		return u.entry(name, func() error { return u.s.symlink(h.Linkname, name) })
	case tar.TypeLink:
		old, err := tarName("link target", h.Linkname)
		if err != nil {
			return err
		}
		u.n.Links++
		return u.entry(name, func() error { return u.s.link(old, name) })
	}
	return fault.New(fault.Invalid, "%.200q is no file, directory or link (type %q): it is not unpacked", name, h.Typeflag)
}

func (u *untarrer) entry(name string, f func() error) error {
	if name == "" {
		return fault.New(fault.Invalid, "the tar has a file without a name")
	}
	return at(name, u.c.act(f))
}

func (u *untarrer) file(name string, mode uint32, h *tar.Header, r io.Reader) error {
	var w blockingWriter
	if err := u.entry(name, func() (err error) { w.f, err = u.s.create(name, mode); return }); err != nil {
		return err
	}
	defer w.f.Close()
	n, err := io.Copy(w, r)
	u.n.Bytes += n
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Invalid, "the tar ends within %.200q", name)
	}
	if err != nil {
		return at(name, err)
	}
	u.n.Files++
	ts, err := unix.TimeToTimespec(h.ModTime)
	if err != nil {
		return nil // a time beyond all use
	}
	return at(name, u.c.act(func() error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(int(w.f.Fd())), []unix.Timespec{ts, ts}, 0)
	}))
}

// tarName is a name in a tar as a path below the top; "" is the top itself.
func tarName(what, name string) (string, error) {
	refused := fault.New(fault.Invalid, "the tar has a %s that leads outside: %.200q", what, name)
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || len(name) > wire.MaxRelative {
		return "", refused
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", refused
		default:
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/"), nil
}

// tarTarget refuses a symbolic link that would lead out of the tree.
func tarTarget(name, target string) error {
	depth := strings.Count(name, "/")
	bad := target == "" || target[0] == '/' || len(target) > 4095 || strings.IndexByte(target, 0) >= 0
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		bad = bad || depth < 0
	}
	if bad {
		return fault.New(fault.Invalid, "the tar has a link that leads outside: %.200q to %.200q", name, target)
	}
	return nil
}
