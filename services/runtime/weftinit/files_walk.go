package weftinit

import (
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const openLevels = 16 // directories of one walk that are open at once

// walker goes through a tree by descriptors: whatever is renamed or swapped for a link meanwhile, it looks
// only at what is in the directories that it opened, and opens no link. It goes as deep as there are levels
// without a call stack or a descriptor for each: of the upper ones it keeps the identity, comes back by "..",
// and makes sure that it is there. All of it runs inside asUser, close excepted.
type walker struct {
	sorted bool     // in the order of names; else as they come, from the start again until none is left: only to remove them
	post   bool     // a directory comes a second time after what is in it
	strict bool     // a directory that can't be opened is an error; else it is skipped
	depth  int      // levels that are entered; 1 is the top only
	resume []string // elements of the path after which to begin
	few    int      // about so many entries are wanted; 0 is all
	keep   bool     // what was read of a large directory is kept for the next page

	levels  []level
	path    []byte // of the innermost level, relative to the top; with a slash at its end unless empty
	held    int    // of the room for names
	entered string // the directory that came last, if it is to be entered
	skipped int64
}

type level struct {
	fd       int // -1 while it is closed
	dev, ino uint64
	name     string // in the level above
	names    *names // nil until some are read
	at       int    // in names, of the next
	last     string // the last name that came
	path     int    // length of the walker's path without name
}

// entry is one name that a walk came to.
type entry struct {
	dir   int // where it is; valid until the walk goes on
	name  string
	st    unix.Stat_t
	leave bool // what is in it came before
}

var errMoved = fault.New(fault.Conflict, "a directory was moved while its tree was gone through; try again")

// walkFrom begins at the open directory fd, which is the walker's from now on.
func walkFrom(fd int, w walker) (*walker, error) {
	if w.depth <= 0 {
		w.depth = wire.MaxDepth
	}
	if err := w.push(fd, ""); err != nil {
		w.close()
		return nil, err
	}
	w.resume = nil
	return &w, nil
}

func (w *walker) push(fd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	l := level{fd: fd, dev: st.Dev, ino: st.Ino, name: name, path: len(w.path)}
	if len(w.levels) > 0 {
		w.path = append(append(w.path, name...), '/')
	}
	w.levels = append(w.levels, l)
	if i := len(w.levels) - 1 - openLevels; i >= 0 {
		w.shut(&w.levels[i])
	}
	return w.goOn(len(w.levels) - 1)
}

// goOn continues where an earlier walk came to.
func (w *walker) goOn(at int) error {
	if at >= len(w.resume) {
		return nil
	}
	top := &w.levels[at]
	top.last = w.resume[at]
	if at+1 >= w.depth {
		return nil
	}
	fd, err := openAt(top.fd, top.last, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, noLinks)
	if err != nil {
		w.resume = nil
		return nil // it is no directory, or gone: its successor is next
	}
	return w.push(fd, top.last)
}

// shut closes a level's directory; it is opened again when the walk comes back to it.
func (w *walker) shut(l *level) {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
	if l.names != nil && l.at < len(l.names.list) {
		w.forget(l)
	}
}

// forget lets go of a level's names; those after the last that came are read again when they are wanted.
func (w *walker) forget(l *level) {
	if l.names == nil {
		return
	}
	w.held -= l.names.room
	shelf.give(l.names.room)
	l.names, l.at = nil, 0
}

func (w *walker) close() {
	for i := range w.levels {
		l := &w.levels[i]
		if w.keep && l.names.worth(l.at) {
			shelf.keep(l.names)
			l.names = nil
		}
		w.shut(l)
		w.forget(l)
	}
	w.levels = nil
}

// next gives the next entry, io.EOF after the last.
func (w *walker) next() (entry, error) {
	if err := w.enter(); err != nil {
		return entry{}, err
	}
	for len(w.levels) > 0 {
		l := &w.levels[len(w.levels)-1]
		name, ok, err := w.name(l)
		if err != nil {
			return entry{}, err
		}
		if !ok {
			e, err := w.pop()
			if err != nil || e.leave {
				return e, err
			}
			continue
		}
		st, err := lstat(l.fd, name)
		if err == unix.ENOENT {
			continue // gone meanwhile
		}
		if err != nil {
			if w.strict {
				return entry{}, err
			}
			w.skipped++
			continue
		}
		if kind(st) == unix.S_IFDIR && len(w.levels) < w.depth {
			w.entered = name
		}
		return entry{dir: l.fd, name: name, st: st}, nil
	}
	return entry{}, io.EOF
}

// skip leaves out what is in the directory that came last.
func (w *walker) skip() { w.entered = "" }

// enter opens the directory that came last.
func (w *walker) enter() error {
	name := w.entered
	if w.entered = ""; name == "" {
		return nil
	}
	l := &w.levels[len(w.levels)-1]
	fd, err := openAt(l.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, noLinks)
	switch {
	case err == unix.ENOENT, err == unix.ENOTDIR, err == unix.ELOOP:
		return nil // it has become something else
	case err != nil && w.strict:
		return fileFault(string(w.relative(name)), err)
	case err != nil:
		w.skipped++
		return nil
	}
	if ofKernel(fd, l.dev) {
		_ = unix.Close(fd)
		w.skipped++
		return nil
	}
	return w.push(fd, name)
}

// relative is the path of a name in the innermost level, valid until the walk goes on.
func (w *walker) relative(name string) []byte { return append(w.path, name...) }

// name takes the next name of a level.
func (w *walker) name(l *level) (string, bool, error) {
	if l.names == nil || l.at == len(l.names.list) && l.names.more {
		if err := w.read(l); err != nil && !errors.Is(err, unix.ENOENT) { // a directory that was removed has no names
			return "", false, err
		}
	}
	if l.at == len(l.names.list) {
		return "", false, nil
	}
	name := l.names.list[l.at]
	l.at++
	l.last = name
	return name, true, nil
}

// read gets a level the names that follow its last one.
func (w *walker) read(l *level) (err error) {
	w.forget(l)
	dir := stateOf(l.fd)
	if w.keep && l.last != "" {
		if l.names, l.at = shelf.find(dir, l.last); l.names != nil {
			w.held += l.names.room
			return nil
		}
	}
	most := namesRoom
	if w.few > 0 && l.last == "" { // one page may be all that anybody wants
		most = max(w.few, 100) * (32 + nameCost)
	}
	n := &names{dir: dir, after: l.last, room: shelf.take(most, w.held)}
	if w.sorted {
		n.list, n.more, err = smallestNames(l.fd, l.last, n.room)
	} else {
		n.list, n.more, err = anyNames(l.fd, n.room)
	}
	shelf.settle(n)
	w.held += n.room
	l.names = n
	return err
}

// pop goes back to the level above.
func (w *walker) pop() (entry, error) {
	l := w.levels[len(w.levels)-1]
	w.forget(&w.levels[len(w.levels)-1])
	w.levels = w.levels[:len(w.levels)-1]
	w.path = w.path[:l.path]
	if len(w.levels) == 0 {
		_ = unix.Close(l.fd)
		return entry{}, nil
	}
	up := &w.levels[len(w.levels)-1]
	err := w.reopen(up, l.fd)
	_ = unix.Close(l.fd)
	if err != nil || !w.post {
		return entry{}, err
	}
	return entry{dir: up.fd, name: l.name, leave: true}, nil
}

func (w *walker) reopen(up *level, from int) error {
	if up.fd >= 0 {
		return nil
	}
	fd, err := openAt(from, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Dev != up.dev || st.Ino != up.ino) {
		err = errMoved
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	up.fd = fd
	return nil
}

// ofKernel says that a directory, unlike the one above it, is of a file system that the kernel makes up:
// its files have no end, or no meaning elsewhere.
func ofKernel(fd int, above uint64) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Dev == above {
		return false
	}
	return kernelMade(fd)
}

func kernelMade(fd int) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil {
		return true
	}
	switch int64(fs.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC:
		return true
	}
	return false
}

// elements of a relative path.
func elements(p string) []string {
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}
