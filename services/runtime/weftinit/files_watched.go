package weftinit

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// maxDirs bounds the directories of one watch; the kernel bounds those of a user, too.
const maxDirs = 8192

const watchedFor = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

// watched is a tree of directories that the kernel watches for us. Each is known by its place below another, so
// that a directory that moves takes all below it along.
type watched struct {
	f     *os.File // of inotify
	deep  bool
	by    map[int]*place
	top   *place
	moved *departure
	out   *pending
	full  bool // there are more directories than may be watched
}

type place struct {
	wd    int
	dev   uint64
	up    *place
	name  string
	below map[string]*place
}

// departure is the first half of a move; the second, if there is one, comes right after.
type departure struct {
	cookie uint32
	path   string
	dir    bool
	place  *place
	temp   bool // it was a file of our own that was not complete
}

func (p *place) path() string {
	var parts []string
	for ; p.up != nil; p = p.up {
		parts = append(parts, p.name)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, "/")
}

func under(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// newWatched makes the kernel's end. It runs inside asUser, so that it counts against payload's limits.
func newWatched(deep bool) (*watched, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE {
		return nil, fault.New(fault.Exhausted, "the sandbox's user watches too much already; end some watches")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the sandbox's kernel can't watch files (%s)", errText(err))
	}
	return &watched{f: os.NewFile(uintptr(fd), "inotify"), deep: deep, by: map[int]*place{}, out: newPending()}, nil
}

// watch begins to watch an open directory.
func (w *watched) watch(fd int, up *place, name string) (*place, error) {
	if len(w.by) >= maxDirs {
		return nil, unix.ENOSPC
	}
	raw, err := w.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var wd int
	var werr error
	if err := raw.Control(func(in uintptr) { wd, werr = unix.InotifyAddWatch(int(in), fdPath(fd), watchedFor) }); err != nil {
		return nil, err
	}
	if werr != nil {
		return nil, werr
	}
	old := w.by[wd]
	if old != nil && old == w.top {
		return old, nil
	}
	if old != nil { // it was moved, and its old place not yet given up
		if !w.rehook(old, up, name) {
			return nil, unix.ESTALE
		}
		return old, nil
	}
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	p := &place{wd: wd, dev: st.Dev, up: up, name: name}
	w.by[wd] = p
	w.hook(p)
	return p, nil
}

func (w *watched) hook(p *place) {
	if p.up == nil {
		w.top = p
		return
	}
	if p.up.below == nil {
		p.up.below = map[string]*place{}
	}
	p.up.below[p.name] = p
}

func (w *watched) unhook(p *place) {
	if p.up != nil && p.up.below[p.name] == p {
		delete(p.up.below, p.name)
	}
}

// rehook gives a directory another place. A walk sees the tree as it is, events tell of it as it was: by both together a directory
// may seem to come below itself. Then it keeps its place, and the whole tree is to be looked at anew.
func (w *watched) rehook(p, up *place, name string) bool {
	for q := up; q != nil; q = q.up {
		if q == p {
			w.out.lost = true
			return false
		}
	}
	w.unhook(p)
	p.up, p.name = up, name
	w.hook(p)
	return true
}

// forget stops watching a directory and all below it.
func (w *watched) forget(p *place) {
	w.unhook(p)
	todo := []*place{p}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, b := range p.below {
			todo = append(todo, b)
		}
		delete(w.by, p.wd)
		if raw, err := w.f.SyscallConn(); err == nil {
			_ = raw.Control(func(in uintptr) { _, _ = unix.InotifyRmWatch(int(in), uint32(p.wd)) })
		}
	}
}

// growth watches the directories that a walk comes to, whose top is the tree's place p; with tell it notes
// what is in them: it was made before the watch was there.
func (w *watched) growth(from *walker, p *place, tell bool) func(entry) error {
	stack := []*place{p}
	return func(e entry) error {
		up := stack[len(from.levels)-1]
		if tell && !isTemp(e.name) {
			w.out.add(wire.Change{Kind: wire.ChangeCreate, Path: wire.Text(under(up.path(), e.name)), Dir: kind(e.st) == unix.S_IFDIR})
		}
		if kind(e.st) != unix.S_IFDIR {
			return nil
		}
		from.skip()
		sub, err := openAt(e.dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, noLinks)
		if err != nil {
			return nil // not readable, or gone
		}
		defer unix.Close(sub)
		if ofKernel(sub, up.dev) {
			return nil
		}
		// Watched first, then gone through: what is made between comes twice, and is put together.
		next, err := w.watch(sub, up, e.name)
		if err == unix.ENOSPC {
			w.full = true
			return errEnough
		}
		if err != nil {
			return nil
		}
		from.entered = e.name
		stack = append(stack[:len(from.levels)], next)
		return nil
	}
}

// read takes what the kernel has, without waiting for more than the file's deadline. It gives the directories that
// are new, and gone if what is watched is no longer there.
func (w *watched) read(b []byte) (fresh []*place, gone bool, err error) {
	n, err := w.f.Read(b)
	if err != nil {
		return nil, false, err
	}
	for off := 0; off+unix.SizeofInotifyEvent <= n; {
		raw := (*unix.InotifyEvent)(unsafe.Pointer(&b[off]))
		ev := *raw
		off += unix.SizeofInotifyEvent
		name := strings.TrimRight(string(b[off:off+int(ev.Len)]), "\x00")
		off += int(ev.Len)
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			w.out.lost = true
			continue
		}
		if p := w.by[int(ev.Wd)]; p != nil {
			gone = w.event(p, ev, name, &fresh) || gone
		}
	}
	return fresh, gone, nil
}

func (w *watched) event(p *place, ev unix.InotifyEvent, name string, fresh *[]*place) (gone bool) {
	dir := ev.Mask&unix.IN_ISDIR != 0
	path := under(p.path(), name)
	if name == "" {
		path = p.path()
	}
	if m := w.moved; m != nil && (ev.Mask&unix.IN_MOVED_TO == 0 || m.cookie != ev.Cookie) && ev.Mask&unix.IN_MOVE_SELF == 0 {
		w.departed()
	}
	if isTemp(name) { // what is written to it is told when it gets its name
		if ev.Mask&unix.IN_MOVED_FROM != 0 {
			w.moved = &departure{cookie: ev.Cookie, temp: true}
		}
		return false
	}
	switch {
	case ev.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		return p.up == nil // what happened to others is told by the directory above
	case ev.Mask&unix.IN_IGNORED != 0:
		w.unhook(p)
		delete(w.by, p.wd)
	case ev.Mask&unix.IN_CREATE != 0:
		w.out.add(wire.Change{Kind: wire.ChangeCreate, Path: wire.Text(path), Dir: dir})
		if dir && w.deep {
			*fresh = append(*fresh, &place{up: p, name: name})
		}
	case ev.Mask&unix.IN_MOVED_FROM != 0:
		w.moved = &departure{cookie: ev.Cookie, path: path, dir: dir, place: p.below[name]}
	case ev.Mask&unix.IN_MOVED_TO != 0:
		m := w.moved
		w.moved = nil
		if m == nil || m.temp {
			w.out.add(wire.Change{Kind: wire.ChangeCreate, Path: wire.Text(path), Dir: dir})
		} else {
			w.out.move(wire.Text(m.path), wire.Text(path), dir)
			if m.place != nil {
				w.rehook(m.place, p, name)
				return false
			}
		}
		if dir && w.deep {
			*fresh = append(*fresh, &place{up: p, name: name})
		}
	case ev.Mask&unix.IN_DELETE != 0:
		w.out.add(wire.Change{Kind: wire.ChangeRemove, Path: wire.Text(path), Dir: dir})
	case ev.Mask&unix.IN_ATTRIB != 0:
		if name != "" || p.up == nil {
			w.out.add(wire.Change{Kind: wire.ChangeAttrib, Path: wire.Text(path), Dir: dir})
		}
	case ev.Mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
		w.out.add(wire.Change{Kind: wire.ChangeModify, Path: wire.Text(path), Dir: dir})
	}
	return false
}

// departed gives up what was moved out of the tree.
func (w *watched) departed() {
	m := w.moved
	if w.moved = nil; m == nil || m.temp {
		return
	}
	w.out.add(wire.Change{Kind: wire.ChangeRemove, Path: wire.Text(m.path), Dir: m.dir})
	if m.place != nil {
		w.forget(m.place)
	}
}
