package weftinit

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// sink puts files into a tree, by paths relative to its top. A path never leads out of it: links in it
// may be followed, but only to what is below the top. Its methods run inside asUser, but for close.
type sink struct {
	top  int
	at   string // the directory that was used last, which is likely to be used next
	dir  int    // it, open; top itself for ""
	late []lateMode
}

// lateMode is the mode of a directory in which files must still be made.
type lateMode struct {
	path string
	mode uint32
}

const maxLate = 10_000

func newSink(top int) *sink { return &sink{top: top, dir: top} }

func (s *sink) close() {
	if s.dir != s.top {
		_ = unix.Close(s.dir)
	}
	_ = unix.Close(s.top)
}

// into opens the directory with this path below the top, and makes what is missing of it.
func (s *sink) into(p string) (int, error) {
	if p == "." {
		p = ""
	}
	if p == s.at {
		return s.dir, nil
	}
	from, rest := s.top, p
	if s.at != "" && strings.HasPrefix(p, s.at+"/") {
		from, rest = s.dir, p[len(s.at)+1:]
	}
	cur := from
	for rest != "" {
		var part string
		part, rest = piece(rest)
		next, err := below(cur, part)
		if cur != from {
			_ = unix.Close(cur)
		}
		if err != nil {
			return -1, err
		}
		cur = next
	}
	if s.dir != s.top && s.dir != cur {
		_ = unix.Close(s.dir)
	}
	s.at, s.dir = p, cur
	return cur, nil
}

// piece takes off a path as much as one call may have.
func piece(p string) (first, rest string) {
	const most = 2048
	if len(p) <= most {
		return p, ""
	}
	i := strings.LastIndexByte(p[:most], '/')
	return p[:i], p[i+1:]
}

func below(dir int, p string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := openAt(dir, p, flags, 0, unix.RESOLVE_BENEATH)
	if err != unix.ENOENT {
		return fd, err
	}
	cur := dir
	for _, name := range elements(p) {
		next, err := openAt(cur, name, flags, 0, unix.RESOLVE_BENEATH)
		if err == unix.ENOENT {
			if err = unix.Mkdirat(cur, name, 0o755); err == nil || err == unix.EEXIST {
				next, err = openAt(cur, name, flags, 0, unix.RESOLVE_BENEATH)
			}
		}
		if cur != dir {
			_ = unix.Close(cur)
		}
		if err != nil {
			return -1, err
		}
		cur = next
	}
	return cur, nil
}

// mkdir makes a directory, or takes the one that is there.
func (s *sink) mkdir(p string, mode uint32) error {
	dir, err := s.into(path.Dir(p))
	if err != nil {
		return err
	}
	name := path.Base(p)
	if err := unix.Mkdirat(dir, name, 0o700); err == unix.EEXIST {
		if st, serr := lstat(dir, name); serr != nil || kind(st) != unix.S_IFDIR {
			return err
		}
	} else if err != nil {
		return err
	}
	if mode&0o700 != 0o700 && len(s.late) < maxLate {
		s.late = append(s.late, lateMode{p, mode})
	}
	return chmodAt(dir, name, mode|0o700)
}

// create opens a new file in place of what is there, which must not be a directory.
func (s *sink) create(p string, mode uint32) (*os.File, error) {
	dir, name, err := s.clear(p)
	if err != nil {
		return nil, err
	}
	fd, err := openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600, noLinks)
	if err != nil {
		return nil, err
	}
	if err := unix.Fchmod(fd, mode&permBits); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), ""), nil
}

func (s *sink) symlink(target, p string) error {
	dir, name, err := s.clear(p)
	if err != nil {
		return err
	}
	return unix.Symlinkat(target, dir, name)
}

// link makes p another name of old, a file below the top.
func (s *sink) link(old, p string) error {
	from, err := s.into(path.Dir(old))
	if err != nil {
		return err
	}
	if from, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0); err != nil { // the next into closes it
		return err
	}
	defer unix.Close(from)
	st, err := lstat(from, path.Base(old))
	if err != nil {
		return err
	}
	if kind(st) != unix.S_IFREG {
		return errNotRegular
	}
	dir, name, err := s.clear(p)
	if err != nil {
		return err
	}
	return unix.Linkat(from, path.Base(old), dir, name, 0)
}

// clear makes room for a new file.
func (s *sink) clear(p string) (dir int, name string, err error) {
	if dir, err = s.into(path.Dir(p)); err != nil {
		return -1, "", err
	}
	name = path.Base(p)
	if err = unix.Unlinkat(dir, name, 0); err == unix.ENOENT {
		err = nil
	}
	return dir, name, err
}

// settle gives directories their modes when nothing more is to be made in them, the deepest first.
func (s *sink) settle() error {
	for i := len(s.late) - 1; i >= 0; i-- {
		dir, err := s.into(path.Dir(s.late[i].path))
		if err == nil {
			err = chmodAt(dir, path.Base(s.late[i].path), s.late[i].mode)
		}
		if err != nil && err != unix.ENOENT {
			return err
		}
	}
	return nil
}
