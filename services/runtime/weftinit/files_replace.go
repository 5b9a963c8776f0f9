package weftinit

import (
	"bytes"
	"io"
	"os"
	"path"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// replace replaces a pattern in files of a tree: those that are named, or all that a glob takes. Each file is
// changed whole or not at all, and not if somebody else has changed it meanwhile.
func (c *call) replace(q wire.FileQuery) error {
	re, err := q.Regexp()
	if err != nil {
		return err
	}
	if len(q.Paths) == 0 && q.Glob == "" {
		return fault.New(fault.Invalid, "say which files: paths, or a glob (** takes all)")
	}
	for _, p := range q.Paths {
		if err := wire.CheckRelative("path", p); err != nil {
			return err
		}
	}
	with := template{{text: []byte(q.With)}}
	if !q.Literal {
		if with, err = parseTemplate(q.With, re); err != nil {
			return err
		}
	}
	if q.MaxSize == 0 {
		q.MaxSize = wire.MaxEditSize
	}
	q.MaxSize = min(q.MaxSize, wire.MaxEditSize)
	r := &replacer{c: c, re: re, q: q, with: with, left: c.leaving()}
	if len(q.Paths) > 0 {
		err = r.named()
	} else {
		err = r.tree()
	}
	if err == nil {
		err = r.flush()
	}
	return c.answer(r.n, err)
}

type replacer struct {
	c    *call
	re   *regexp.Regexp
	q    wire.FileQuery
	with template
	left <-chan struct{}
	n    wire.Count
	wait []*job
	done []wire.Replaced
	size int // bytes of the paths in done
}

// job is one file in which something may be replaced, and where it is.
type job struct {
	opened
	dir int // open; the job's own
}

func (j *job) close() {
	_ = j.f.Close()
	_ = unix.Close(j.dir)
}

// open takes up a file in dir.
func (r *replacer) open(dir int, name string, path string) error {
	fd, st, err := openRegular(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if st.Size > r.q.MaxSize {
		_ = unix.Close(fd)
		return fault.New(fault.Exhausted, "%.200q has more than %d bytes; edit it with a command", path, r.q.MaxSize)
	}
	own, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	r.wait = append(r.wait, &job{opened{os.NewFile(uintptr(fd), name), path, st}, own})
	return nil
}

func (r *replacer) tree() error {
	w, err := r.c.walker(wire.FileQuery{Depth: r.q.Depth, Glob: r.q.Glob})
	if err != nil {
		return err
	}
	defer r.drop()
	err = r.c.walk(r.left, w, func(e entry) error {
		path := w.relative(e.name)
		if kind(e.st) != unix.S_IFREG || len(path) > wire.MaxRelative || !taken(r.q.Glob, path) {
			return nil
		}
		if r.open(e.dir, e.name, string(path)) != nil {
			r.n.Skipped++
		}
		if len(r.wait) >= openFiles {
			return errPause
		}
		return nil
	}, r.work)
	r.n.Skipped += w.skipped
	return err
}

// named works on the files that the request names. Their paths stay below the top.
func (r *replacer) named() error {
	top, err := r.c.openTop()
	if err != nil {
		return err
	}
	defer unix.Close(top)
	defer r.drop()
	for _, p := range r.q.Paths {
		err := r.c.act(func() error {
			above, base := path.Split(string(p))
			dir, err := openAt(top, "./"+above, unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_BENEATH)
			if err != nil {
				return err
			}
			defer unix.Close(dir)
			return r.open(dir, base, string(p))
		})
		if err != nil {
			r.note(wire.Replaced{Path: p}, fileFault(string(p), err))
			continue
		}
		if err := r.work(); err != nil {
			return err
		}
	}
	return nil
}

func (r *replacer) drop() {
	for _, j := range r.wait {
		j.close()
	}
}

func (r *replacer) note(what wire.Replaced, err error) {
	if err != nil {
		e := wire.ErrorOf(err)
		what.Error = &e
	}
	r.done, r.size = append(r.done, what), r.size+len(what.Path)
}

// work edits the files that wait.
func (r *replacer) work() error {
	for len(r.wait) > 0 {
		j := r.wait[0]
		r.wait = r.wait[1:]
		count, err := r.edit(j)
		j.close()
		if count > 0 || err != nil || len(r.q.Paths) > 0 {
			if err != nil {
				err = fileFault(j.path, err)
			} else if count > 0 {
				r.n.Files++
				r.n.Matches += int64(count)
			}
			r.note(wire.Replaced{Path: wire.Text(j.path), Count: count}, err)
		}
		select {
		case <-r.left:
			return errCut
		default:
		}
	}
	if len(r.done) >= 200 || r.size > wire.MaxPageBytes {
		return r.flush()
	}
	return nil
}

func (r *replacer) flush() error {
	if len(r.done) == 0 {
		return nil
	}
	done := r.done
	r.done, r.size = nil, 0
	return r.c.told(wire.Tree{Replaced: done})
}

// edit replaces in one file.
func (r *replacer) edit(j *job) (int, error) {
	old, err := io.ReadAll(blockingReader{io.LimitReader(j.f, r.q.MaxSize+1)})
	if err != nil {
		return 0, err
	}
	if int64(len(old)) > r.q.MaxSize {
		return 0, fault.New(fault.Exhausted, "%.200q has more than %d bytes; edit it with a command", j.path, r.q.MaxSize)
	}
	if bytes.IndexByte(old[:min(len(old), sniffed)], 0) >= 0 {
		if len(r.q.Paths) > 0 {
			return 0, fault.New(fault.Invalid, "%.200q is no text", j.path)
		}
		r.n.Skipped++
		return 0, nil
	}
	now, count, err := r.with.replaceAll(r.re, old, wire.MaxEditSize)
	if err != nil || count == 0 || r.q.DryRun {
		return count, err
	}
	return count, r.put(j, now)
}

// put makes b the content of the file.
func (r *replacer) put(j *job, b []byte) error {
	var t *fresh
	err := r.c.act(func() error {
		dir, err := unix.FcntlInt(uintptr(j.dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t, err = newFresh(dir, j.f.Name(), j.st.Mode&0o777, false)
		return err
	})
	if err != nil {
		return err
	}
	_, err = blockingWriter{t.f}.Write(b)
	if err == nil {
		err = r.c.act(func() error {
			st, err := lstat(j.dir, j.f.Name())
			if err == nil && (st.Dev != j.st.Dev || st.Ino != j.st.Ino || st.Mtim != j.st.Mtim || st.Size != j.st.Size) {
				err = fault.New(fault.Conflict, "%.200q was changed meanwhile; try again", j.path)
			}
			return err
		})
	}
	_, err = r.c.finish(t, err)
	return err
}
