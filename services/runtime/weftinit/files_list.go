package weftinit

import (
	"bytes"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// told describes an entry with its path.
func (w *walker) told(e entry) wire.FileInfo {
	info := infoOf(e.st, e.name)
	info.Path = wire.Text(w.relative(e.name))
	if info.Type == wire.FileSymlink {
		info.Target = wire.Text(readlink(e.dir, e.name))
	}
	return info
}

// entries tells one page.
func (c *call) entries(q wire.FileQuery) error {
	if q.Limit == 0 || q.Limit > wire.MaxPage {
		q.Limit = wire.MaxPage
	}
	if q.After != "" {
		if err := wire.CheckRelative("the path to go on after", q.After); err != nil {
			return err
		}
	}
	q.Limit++ // whether there is another
	var tree wire.Tree
	bytes := 0
	err := c.list(q, func(page []wire.FileInfo) error {
		for _, f := range page {
			if tree.More = len(tree.Entries) == q.Limit-1 || bytes > wire.MaxPageBytes; tree.More {
				return errEnough
			}
			f.Name = "" // it is the end of the path
			tree.Entries = append(tree.Entries, f)
			bytes += len(f.Path) + len(f.Target)
		}
		return nil
	})
	if err != nil && err != errEnough {
		return c.answer(wire.Count{}, err)
	}
	return c.reply(wire.Reply{Tree: &tree})
}

var errEnough = fault.New(fault.Internal, "enough was found")

// list goes through a tree in order and gives what the glob takes, up to q.Limit, in batches.
func (c *call) list(q wire.FileQuery, each func([]wire.FileInfo) error) error {
	w, err := c.walker(q)
	if err != nil {
		return err
	}
	var batch []wire.FileInfo
	left, total, bytes := c.leaving(), 0, 0
	err = c.walk(left, w, func(e entry) error {
		path := w.relative(e.name)
		if len(path) > wire.MaxRelative {
			w.skip()
			w.skipped++
			return nil
		}
		if !taken(q.Glob, path) {
			return nil
		}
		f := w.told(e)
		batch, bytes = append(batch, f), bytes+len(f.Path)+len(f.Target)
		if total++; len(batch) >= wire.MaxPage || bytes > wire.MaxPageBytes || total >= q.Limit {
			return errPause
		}
		return nil
	}, func() error {
		page := batch
		batch, bytes = nil, 0
		if len(page) > 0 {
			if err := each(page); err != nil {
				return err
			}
		}
		if total >= q.Limit {
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		return nil
	}
	return err
}

// walker goes through the directory of the request in order.
func (c *call) walker(q wire.FileQuery) (w *walker, err error) {
	depth := q.Depth
	if most := globDepth(q.Glob); most > 0 {
		depth = min(depth, most)
	}
	err = c.act(func() error {
		fd, err := openAt(unix.AT_FDCWD, string(c.req.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0, 0)
		if err != nil {
			return err
		}
		w, err = walkFrom(fd, walker{sorted: true, depth: depth, resume: elements(string(q.After)), few: q.Limit,
			keep: c.req.Op == wire.OpEntries})
		return err
	})
	return w, err
}

// globDepth is how deep a pattern reaches; 0 without end.
func globDepth(glob string) int {
	if glob == "" || bytes.Contains([]byte(glob), []byte("**")) || bytes.ContainsAny([]byte(glob), "{[\\") {
		return 0
	}
	return bytes.Count([]byte(glob), []byte("/")) + 1
}

// taken says whether a glob takes a path; the empty one takes all.
func taken(glob string, path []byte) bool {
	if glob == "" {
		return true
	}
	ok, _ := doublestar.Match(glob, string(path))
	return ok
}

// glob tells the paths that match, in order.
func (c *call) glob(q wire.FileQuery) error {
	if q.Glob == "" {
		return fault.New(fault.Invalid, "the glob is empty; ** takes everything")
	}
	if q.Limit == 0 || q.Limit > wire.MaxMatches {
		q.Limit = wire.MaxMatches
	}
	most := q.Limit
	q.Limit++
	var n wire.Count
	err := c.list(q, func(page []wire.FileInfo) error {
		if room := most - int(n.Matches); len(page) > room {
			page, n.Truncated = page[:room], true
		}
		n.Matches += int64(len(page))
		return c.told(wire.Tree{Entries: page})
	})
	return c.answer(n, err)
}
