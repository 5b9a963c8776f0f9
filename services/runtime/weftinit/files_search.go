package weftinit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	defaultMatches = 1000
	defaultSearch  = 16 << 20 // bytes of one file
	lineRoom       = 64 << 10 // a longer line is taken for several
	lineShown      = 1 << 10  // bytes that are told of one
	sniffed        = 8 << 10  // a file with a NUL in its first bytes is no text
	openFiles      = 16       // that wait for being read
)

// opened is a file that waits for being read.
type opened struct {
	f    *os.File
	path string
	st   unix.Stat_t
}

// openInWalk opens the regular file that a walk came to, nil if it is not to be read.
func openInWalk(e entry, path []byte) *opened {
	fd, st, err := openRegular(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	return &opened{os.NewFile(uintptr(fd), ""), string(path), st}
}

// search tells the lines that match in the files of a tree, or in one file.
func (c *call) search(q wire.FileQuery) error {
	re, err := q.Regexp()
	if err != nil {
		return err
	}
	s := &searcher{c: c, re: re, q: q, left: c.leaving(), in: bufio.NewReaderSize(nil, lineRoom)}
	if s.q.Limit == 0 {
		s.q.Limit = defaultMatches
	}
	s.q.Limit = min(s.q.Limit, wire.MaxMatches)
	if s.q.MaxSize == 0 {
		s.q.MaxSize = defaultSearch
	}
	s.q.MaxSize = min(s.q.MaxSize, wire.MaxSearchSize)
	err = s.tree()
	if err == errEnough {
		s.n.Truncated, err = true, nil
	}
	if err == nil {
		err = s.flush()
	}
	return c.answer(s.n, err)
}

type searcher struct {
	c     *call
	re    *regexp.Regexp
	q     wire.FileQuery
	left  <-chan struct{}
	in    *bufio.Reader // of one file after the other
	n     wire.Count
	wait  []*opened
	found []wire.Match
	bytes int // in found
}

func (s *searcher) tree() error {
	defer func() {
		for _, o := range s.wait {
			_ = o.f.Close()
		}
	}()
	var one *opened
	err := s.c.act(func() error {
		fd, st, err := openRegular(unix.AT_FDCWD, string(s.c.req.Path), unix.O_RDONLY, 0)
		if errors.Is(err, errNotRegular) {
			return nil
		}
		if err == nil {
			one = &opened{os.NewFile(uintptr(fd), ""), "", st}
		}
		return err
	})
	if err != nil {
		return err
	}
	if one != nil {
		s.wait = append(s.wait, one)
		return s.read()
	}
	w, err := s.c.walker(wire.FileQuery{Depth: s.q.Depth, Glob: s.q.Glob})
	if err != nil {
		return err
	}
	err = s.c.walk(s.left, w, func(e entry) error {
		path := w.relative(e.name)
		if kind(e.st) != unix.S_IFREG || len(path) > wire.MaxRelative || !taken(s.q.Glob, path) {
			return nil
		}
		if e.st.Size > s.q.MaxSize {
			s.n.Skipped++
			return nil
		}
		o := openInWalk(e, path)
		if o == nil {
			s.n.Skipped++
			return nil
		}
		if s.wait = append(s.wait, o); len(s.wait) >= openFiles {
			return errPause
		}
		return nil
	}, s.read)
	s.n.Skipped += w.skipped
	return err
}

// read searches the files that wait.
func (s *searcher) read() error {
	for len(s.wait) > 0 {
		o := s.wait[0]
		s.wait = s.wait[1:]
		err := s.file(o)
		_ = o.f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// file goes through one file line by line.
func (s *searcher) file(o *opened) error {
	r := s.in
	r.Reset(blockingReader{io.LimitReader(o.f, s.q.MaxSize)})
	head, _ := r.Peek(sniffed)
	if bytes.IndexByte(head, 0) >= 0 {
		s.n.Skipped++
		return nil
	}
	s.n.Files++
	v := &view{s: s, path: wire.Text(o.path)}
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := v.line(line, err == nil || errors.Is(err, io.EOF)); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			s.n.Skipped++ // unreadable, as some are of a device that fails
			return nil
		}
		select {
		case <-s.left:
			return errCut
		default:
		}
	}
}

// view is the file that is searched: where in it, and what stands around.
type view struct {
	s      *searcher
	path   wire.Text
	number int
	before []wire.Text
	open   []int // matches, by their place in found, that still lack lines after them
	middle bool  // the line began before
}

func (v *view) line(raw []byte, whole bool) error {
	if !v.middle {
		v.number++
	}
	v.middle = !whole
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	at := v.s.re.FindIndex(raw)
	if v.s.q.Context > 0 {
		text := shown(raw)
		v.open = v.s.after(v.open, text)
		if at != nil {
			v.open = append(v.open, len(v.s.found))
		}
		defer func() {
			if v.before = append(v.before, text); len(v.before) > v.s.q.Context {
				v.before = v.before[1:]
			}
		}()
	}
	if at == nil {
		return nil
	}
	if int(v.s.n.Matches) >= v.s.q.Limit {
		return errEnough
	}
	v.s.n.Matches++
	m := wire.Match{Path: v.path, Line: v.number, Column: at[0] + 1, Text: shown(raw), Before: append([]wire.Text(nil), v.before...)}
	v.s.found = append(v.s.found, m)
	v.s.bytes += len(m.Path) + (1+2*v.s.q.Context)*len(m.Text) + 64
	if v.s.bytes > wire.MaxPageBytes && len(v.open) == 0 {
		return v.s.flush()
	}
	if v.s.bytes > 8*wire.MaxPageBytes { // lines after the last ones are left out
		v.open = nil
		return v.s.flush()
	}
	return nil
}

// after adds a line to the matches that lack some, and gives those that still do.
func (s *searcher) after(open []int, text wire.Text) []int {
	kept := open[:0]
	for _, i := range open {
		m := &s.found[i]
		m.After = append(m.After, text)
		s.bytes += len(text)
		if len(m.After) < s.q.Context {
			kept = append(kept, i)
		}
	}
	return kept
}

func (s *searcher) flush() error {
	if len(s.found) == 0 {
		return nil
	}
	found := s.found
	s.found, s.bytes = nil, 0
	return s.c.told(wire.Tree{Matches: found})
}

func shown(line []byte) wire.Text { return wire.Text(line[:min(len(line), lineShown)]) }

// blockingReader reads from a file within the bounds of what may block.
type blockingReader struct{ r io.Reader }

func (b blockingReader) Read(p []byte) (n int, err error) {
	block(func() { n, err = b.r.Read(p) })
	return n, err
}
