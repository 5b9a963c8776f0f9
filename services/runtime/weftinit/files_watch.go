package weftinit

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	defaultWindow = 50 * time.Millisecond
	leastWindow   = 5 * time.Millisecond
)

// watch tells what happens in a directory, with Deep in all below it, until the node leaves. A node that is slow gets
// what happened to each path put together, and at last an overflow; nothing is kept beyond that.
func (c *call) watch(q wire.FileQuery) error {
	release, err := occupy(&watches, maxWatches, "watches")
	if err != nil {
		return err
	}
	defer release()
	if q.Window == 0 {
		q.Window = defaultWindow
	}
	q.Window = max(q.Window, leastWindow)
	t := &watching{c: c, window: max(q.Window, leastWindow), left: c.leaving()}
	if err := t.begin(); err != nil {
		return c.answer(wire.Count{}, err)
	}
	defer func() { _ = t.w.f.Close() }()
	if t.w.full {
		return errTooMany
	}
	err = c.told(wire.Tree{Events: []wire.Change{{Kind: wire.ChangeReady}}})
	if err == nil {
		err = t.run()
	}
	return c.answer(wire.Count{}, err)
}

var errTooMany = fault.New(fault.Exhausted, "more than %d directories, or more than the sandbox's user may watch; watch a smaller tree", maxDirs)

// watching is one watch under way.
type watching struct {
	c      *call
	w      *watched
	window time.Duration
	left   <-chan struct{}
}

// begin sets all watches of the request, anew where there are some. It changes nothing if it fails.
func (t *watching) begin() error {
	var from *walker
	var w *watched
	var top *place
	err := t.c.act(func() error {
		fd, err := openAt(unix.AT_FDCWD, string(t.c.req.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
		if err != nil {
			return err
		}
		if w, err = newWatched(t.c.req.Deep); err == nil {
			if top, err = w.watch(fd, nil, ""); err == unix.ENOSPC {
				err = errTooMany
			}
		}
		if err != nil || !w.deep {
			_ = unix.Close(fd)
			return err
		}
		from, err = walkFrom(fd, walker{sorted: true})
		return err
	})
	if err == nil && from != nil {
		err = t.grow(w, from, top, false)
	}
	if err != nil {
		if w != nil {
			_ = w.f.Close()
		}
		return err
	}
	t.w = w
	return nil
}

func (t *watching) grow(w *watched, from *walker, p *place, tell bool) error {
	err := t.c.walk(t.left, from, w.growth(from, p, tell), nil)
	if err == errEnough || errors.Is(err, errMoved) { // the rest of what moved comes by its own events
		return nil
	}
	return err
}

func (t *watching) run() error {
	b := make([]byte, 32<<10)
	for {
		gone, err := t.gather(b)
		if err != nil {
			return err
		}
		t.w.departed()
		lost := t.w.out.lost
		events := t.w.out.take()
		if t.w.full && !lost { // there are directories that are not watched
			events = append(events, wire.Change{Kind: wire.ChangeOverflow})
			t.w.full = false
		}
		if gone {
			events = append(events, wire.Change{Kind: wire.ChangeGone})
		}
		if len(events) > 0 {
			if err := t.c.told(wire.Tree{Events: events}); err != nil {
				return err
			}
		}
		if gone {
			return nil
		}
		if lost {
			// New directories may have been among what was lost.
			_ = t.w.f.Close()
			switch err := t.begin(); {
			case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR): // and so may have been its end
				return t.c.told(wire.Tree{Events: []wire.Change{{Kind: wire.ChangeGone}}})
			case err != nil:
				return err
			}
		}
	}
}

// gather waits for the first event and takes what comes within the window after it.
func (t *watching) gather(b []byte) (gone bool, err error) {
	look := time.Second // how often it is looked whether anybody still listens
	for first := true; ; {
		if first {
			_ = t.w.f.SetReadDeadline(time.Now().Add(look))
		}
		fresh, g, err := t.w.read(b)
		select {
		case <-t.left:
			return gone, errCut
		default:
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if first {
				continue
			}
			return gone, nil
		}
		if err != nil {
			return gone, err
		}
		gone = gone || g
		if first {
			first = false
			_ = t.w.f.SetReadDeadline(time.Now().Add(t.window))
		}
		for _, p := range fresh {
			if err := t.take(p); err != nil {
				return gone, err
			}
		}
	}
}

// take watches a directory that came into the tree, and all below it.
func (t *watching) take(p *place) error {
	var from *walker
	var at *place
	err := t.c.act(func() error {
		top, err := openAt(unix.AT_FDCWD, string(t.c.req.Path), unix.O_PATH|unix.O_DIRECTORY, 0, 0)
		if err != nil {
			return nil // it is gone; that is told by an event of its own, here and below
		}
		defer unix.Close(top)
		fd, err := openBelow(top, under(p.up.path(), p.name))
		if err != nil {
			return nil
		}
		if at, err = t.w.watch(fd, p.up, p.name); err != nil {
			t.w.full = t.w.full || err == unix.ENOSPC
			_ = unix.Close(fd)
			return nil
		}
		from, err = walkFrom(fd, walker{sorted: true})
		return err
	})
	if err != nil || from == nil {
		return err
	}
	return t.grow(t.w, from, at, true)
}

// openBelow opens a directory by its path below top, through no link, however long the path is.
func openBelow(top int, path string) (int, error) {
	cur := top
	for path != "" {
		var part string
		part, path = piece(path)
		flags := unix.O_PATH
		if path == "" {
			flags = unix.O_RDONLY
		}
		next, err := openAt(cur, part, flags|unix.O_DIRECTORY, 0, unix.RESOLVE_BENEATH|noLinks)
		if cur != top {
			_ = unix.Close(cur)
		}
		if err != nil {
			return -1, err
		}
		cur = next
	}
	return cur, nil
}
