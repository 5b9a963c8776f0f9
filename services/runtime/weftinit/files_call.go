package weftinit

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	maxWalks   = 8                     // trees that are gone through at once; others wait
	maxStreams = 64                    // files and trees that are sent or taken at once; others are refused
	maxWatches = 16                    // of OpWatch at once
	slice      = 20 * time.Millisecond // for which one walk keeps a thread
)

var (
	walks   = make(chan struct{}, maxWalks)
	streams atomic.Int64
	watches atomic.Int64
)

// occupy takes one of most places.
func occupy(n *atomic.Int64, most int64, what string) (release func(), err error) {
	if n.Add(1) > most {
		n.Add(-1)
		return nil, fault.New(fault.Exhausted, "%d %s are under way in this sandbox; try again when one has ended", most, what)
	}
	return func() { n.Add(-1) }, nil
}

// act does f as the user of the request.
func (c *call) act(f func() error) error { return asUser(*c.req.As, f) }

// leaving notices when the node gives an operation up that takes no input.
func (c *call) leaving() (left <-chan struct{}) {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		_, _ = c.frames.Next() // nothing is to come: it returns when the node closes the stream
	}()
	return ch
}

var (
	errCut   = errors.New("the node left before the end")
	errPause = errors.New("enough for now")
)

// walk goes through w as the user, for a slice of time at once, and does between after each, outside. An errPause of
// visit ends a slice sooner. Places for walks are few; whoever left does not wait for one.
func (c *call) walk(left <-chan struct{}, w *walker, visit func(e entry) error, between func() error) error {
	select {
	case walks <- struct{}{}:
	case <-left:
		w.close()
		return errCut
	}
	defer func() { <-walks }()
	return c.walkFree(left, w, visit, between)
}

// walkFree is walk without a place: for what goes as slowly as the node takes it.
func (c *call) walkFree(left <-chan struct{}, w *walker, visit func(e entry) error, between func() error) error {
	defer w.close()
	for end := false; !end; {
		select {
		case <-left:
			return errCut
		default:
		}
		err := c.act(func() error {
			for until := time.Now().Add(slice); time.Now().Before(until); {
				e, err := w.next()
				if errors.Is(err, io.EOF) {
					end = true
					return nil
				}
				if err == nil {
					err = visit(e)
				}
				if errors.Is(err, errPause) {
					return nil
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && between != nil {
			err = between()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// told sends one message of an answer that has many.
func (c *call) told(t wire.Tree) error {
	if err := c.reply(wire.Reply{Tree: &t}); err != nil {
		return errCut
	}
	return nil
}

// answer ends an operation: with its count, with what went wrong, or with nothing if nobody is there any more.
func (c *call) answer(n wire.Count, err error) error {
	if errors.Is(err, errCut) {
		return nil
	}
	if err != nil {
		return fileFault(string(c.req.Path), err)
	}
	return c.reply(wire.Reply{Tree: &wire.Tree{Count: &n}})
}

// query is what the request looks for.
func (c *call) query() (wire.FileQuery, error) {
	q := wire.FileQuery{}
	if c.req.Files != nil {
		q = *c.req.Files
	}
	return q, q.Check()
}

// openTop opens the directory that the request names; links to it are followed.
func (c *call) openTop() (fd int, err error) {
	err = c.act(func() error {
		fd, err = openAt(unix.AT_FDCWD, string(c.req.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
		return err
	})
	return fd, err
}

// frameReader reads the data frames that come.
type frameReader struct {
	frames *wire.Reader
	rest   []byte
	err    error
}

func (r *frameReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		f, err := r.frames.Next()
		switch {
		case err != nil || f.Type != wire.TypeData && f.Type != wire.TypeEOF:
			r.err = errCut
		case f.Type == wire.TypeEOF:
			r.err = io.EOF
		default:
			r.rest = f.Body
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// frameWriter sends data frames.
type frameWriter struct{ c *call }

func (w frameWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := min(len(p)-n, wire.MaxBody)
		if err := wire.WriteFrame(w.c.stream, wire.TypeData, p[n:n+k]); err != nil {
			return n, errCut
		}
		n += k
	}
	return len(p), nil
}
