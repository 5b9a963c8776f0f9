package supervisor

import (
	"context"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// What is said of trees is documented with its wire types.
type (
	FileQuery  = wire.FileQuery
	FileMatch  = wire.Match
	Replaced   = wire.Replaced
	FileChange = wire.Change
	FileCount  = wire.Count
	FileTree   = wire.Tree
)

// Kinds of changes that a caller tells apart.
const (
	ChangeReady = wire.ChangeReady
	ChangeMove  = wire.ChangeMove
)

// CheckPath refuses what is not an absolute path.
func CheckPath(p string) error { return wire.CheckPath("path", Text(p)) }

// errNotUnderstood is for answers that only something else than weft-init gives.
var errNotUnderstood = fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")

// many is for operations whose answer has many messages; the last one has the count.
func (f *Files) many(ctx context.Context, req wire.Request, each func(wire.Tree) error) (FileCount, error) {
	st, reply, err := f.box.open(ctx, req)
	if err != nil {
		return FileCount{}, err
	}
	defer st.Close()
	defer st.until(ctx)()
	for {
		t := reply.Tree
		switch {
		case t == nil:
			return FileCount{}, errNotUnderstood
		case t.Count != nil:
			return *t.Count, nil
		case each == nil:
			return FileCount{}, errNotUnderstood
		}
		if err := each(*t); err != nil {
			return FileCount{}, err
		}
		if reply, err = st.reply(ctx); err != nil {
			return FileCount{}, err
		}
	}
}

func (f *Files) query(op wire.Op, path string, q FileQuery) wire.Request {
	req := f.request(op, path)
	req.Files = &q
	return req
}

// Entries gives one page of a directory, or to q.Depth levels of a tree, in the order of the paths; more says that
// there is another, after the last entry's path.
func (f *Files) Entries(ctx context.Context, path string, q FileQuery) (page []FileInfo, more bool, err error) {
	r, err := f.box.askAgain(ctx, f.query(wire.OpEntries, path, q))
	if err != nil {
		return nil, false, err
	}
	if r.Tree == nil {
		return nil, false, errNotUnderstood
	}
	return r.Tree.Entries, r.Tree.More, nil
}

// Glob gives the entries of a tree whose paths match, in their order, batch by batch.
func (f *Files) Glob(ctx context.Context, path string, q FileQuery, each func([]FileInfo) error) (FileCount, error) {
	return f.many(ctx, f.query(wire.OpGlob, path, q), func(t wire.Tree) error { return each(t.Entries) })
}

// Search gives the lines of a tree's files, or of one file, that match, batch by batch.
func (f *Files) Search(ctx context.Context, path string, q FileQuery, each func([]FileMatch) error) (FileCount, error) {
	return f.many(ctx, f.query(wire.OpSearch, path, q), func(t wire.Tree) error { return each(t.Matches) })
}

// Replace replaces in a tree's files, and gives what became of each, batch by batch.
func (f *Files) Replace(ctx context.Context, path string, q FileQuery, each func([]Replaced) error) (FileCount, error) {
	return f.many(ctx, f.query(wire.OpReplace, path, q), func(t wire.Tree) error { return each(t.Replaced) })
}

// Watch gives what happens in a directory, with deep in all below it, until ctx ends, each fails, or the directory is
// gone (the last change says so). The first change is ChangeReady.
func (f *Files) Watch(ctx context.Context, path string, deep bool, window time.Duration, each func([]FileChange) error) error {
	req := f.query(wire.OpWatch, path, FileQuery{Window: window})
	req.Deep = deep
	_, err := f.many(ctx, req, func(t wire.Tree) error { return each(t.Events) })
	return err
}

// Copy makes a copy of a file or tree. Into a directory that is there a tree is merged.
func (f *Files) Copy(ctx context.Context, from, to string, q FileQuery) (FileCount, error) {
	req := f.query(wire.OpCopy, from, q)
	req.To = Text(to)
	return f.many(ctx, req, nil)
}

// Move renames a file or tree, and copies and removes it where source and target are on different file systems.
func (f *Files) Move(ctx context.Context, from, to string, q FileQuery) (FileCount, error) {
	req := f.query(wire.OpMove, from, q)
	req.To = Text(to)
	return f.many(ctx, req, nil)
}

// RemoveTree deletes a file or a directory with all below it, and says how much that was.
func (f *Files) RemoveTree(ctx context.Context, path string, recursive bool) (FileCount, error) {
	req := f.request(wire.OpRemove, path)
	req.Deep = recursive
	return f.many(ctx, req, nil)
}

// Chmod sets permission bits, with recursive of all below, too, but of no link.
func (f *Files) Chmod(ctx context.Context, path string, mode uint32, recursive bool) (FileCount, error) {
	req := f.request(wire.OpChmod, path)
	req.Mode, req.Deep = mode, recursive
	return f.many(ctx, req, nil)
}

// Touch makes a file if it is missing and sets its time of change, nil is now.
func (f *Files) Touch(ctx context.Context, path string, at *time.Time) (FileInfo, error) {
	return fileOf(f.box.askAgain(ctx, f.query(wire.OpTouch, path, FileQuery{Time: at})))
}

// TarOut writes a directory, or one file, as tar to w.
func (f *Files) TarOut(ctx context.Context, path string, w io.Writer) (n FileCount, err error) {
	st, _, err := f.box.open(ctx, f.request(wire.OpTarOut, path))
	if err != nil {
		return n, err
	}
	defer st.Close()
	defer st.until(ctx)()
	if _, err := io.Copy(w, &fileReader{ctx: ctx, st: st}); err != nil {
		return n, err
	}
	r, err := st.reply(ctx)
	if err != nil {
		return n, err
	}
	if r.Tree == nil || r.Tree.Count == nil {
		return n, errNotUnderstood
	}
	return *r.Tree.Count, nil
}

// TarIn unpacks the tar that r gives into a directory, which is made if it is missing. What leads out of the
// directory, and whatever is no file, directory or link, is invalid. It stops there; what came before stays.
func (f *Files) TarIn(ctx context.Context, path string, r io.Reader) (n FileCount, err error) {
	reply, err := f.send(ctx, f.request(wire.OpTarIn, path), r)
	if err != nil {
		return n, err
	}
	if reply.Tree == nil || reply.Tree.Count == nil {
		return n, errNotUnderstood
	}
	return *reply.Tree.Count, nil
}
