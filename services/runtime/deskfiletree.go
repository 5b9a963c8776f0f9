package runtime

import (
	"context"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// onTree is onFiles for operations that end with a count.
func (d *desk) onTree(ctx context.Context, do func(context.Context, *supervisor.Files) (supervisor.FileCount, error), paths ...runtime.FilePath) (runtime.FileCount, error) {
	n, err := onFiles(ctx, d, do, paths...)
	return fileCount(n), err
}

// FileMove moves a file or tree, also to another file system of the sandbox.
func (d *desk) FileMove(ctx context.Context, _ mesh.Caller, req runtime.FileMove, _ *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Move(ctx, req.From.Raw(), req.To.Raw(), supervisor.FileQuery{Parents: req.Parents, Keep: req.Keep})
	}, req.From, req.To)
}

// FileCopy copies a file or tree.
func (d *desk) FileCopy(ctx context.Context, _ mesh.Caller, req runtime.FileMove, _ *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Copy(ctx, req.From.Raw(), req.To.Raw(), supervisor.FileQuery{Parents: req.Parents, Keep: req.Keep})
	}, req.From, req.To)
}

// FileRemove removes a file or tree.
func (d *desk) FileRemove(ctx context.Context, _ mesh.Caller, req runtime.FileRemove, _ *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.RemoveTree(ctx, req.Raw(), req.Recursive)
	}, req.FilePath)
}

// FileChmod sets permission bits.
func (d *desk) FileChmod(ctx context.Context, _ mesh.Caller, req runtime.FileChmod, _ *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Chmod(ctx, req.Raw(), req.Mode&0o7777, req.Recursive)
	}, req.FilePath)
}

// FileGlob tells the paths that match.
func (d *desk) FileGlob(ctx context.Context, _ mesh.Caller, req runtime.FileGlob, s *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Glob(ctx, req.Raw(), supervisor.FileQuery{Glob: req.Glob, Limit: req.Limit},
			lines(s, func(i supervisor.FileInfo) runtime.FileEntry { return fileEntry(i, runtime.PathOf(string(i.Path))) }))
	}, req.FilePath)
}

// FileSearch tells the lines that match.
func (d *desk) FileSearch(ctx context.Context, _ mesh.Caller, req runtime.FileSearch, s *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Search(ctx, req.Raw(), supervisor.FileQuery{Pattern: req.Pattern, Literal: req.Literal, IgnoreCase: req.IgnoreCase,
			Glob: req.Glob, Context: req.Context, Limit: req.Limit, MaxSize: req.MaxBytes},
			lines(s, func(m supervisor.FileMatch) runtime.FileMatch {
				return runtime.FileMatch{FilePath: runtime.PathOf(string(m.Path)), Line: m.Line, Column: m.Column, Text: legible(m.Text),
					Before: legibles(m.Before), After: legibles(m.After)}
			}))
	}, req.FilePath)
}

// legible makes UTF-8 of what a file has.
func legible(t supervisor.Text) string { return strings.ToValidUTF8(string(t), "\uFFFD") }

func legibles(in []supervisor.Text) (out []string) {
	for _, t := range in {
		out = append(out, legible(t))
	}
	return out
}

// FileReplace replaces in files, and tells what became of each.
func (d *desk) FileReplace(ctx context.Context, _ mesh.Caller, req runtime.FileReplace, s *stream.Session) (runtime.FileCount, error) {
	q := supervisor.FileQuery{Pattern: req.Pattern, Literal: req.Literal, IgnoreCase: req.IgnoreCase, Glob: req.Glob, With: req.With, DryRun: req.DryRun, MaxSize: req.MaxBytes}
	for _, p := range req.Paths {
		q.Paths = append(q.Paths, supervisor.Text(p.Raw()))
	}
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.Replace(ctx, req.Raw(), q, lines(s, func(r supervisor.Replaced) runtime.FileReplaced {
			out := runtime.FileReplaced{FilePath: runtime.PathOf(string(r.Path)), Count: r.Count}
			if r.Error != nil {
				out.Code, out.Message = string(r.Error.Code), r.Error.Message
			}
			return out
		}))
	}, req.FilePath)
}

// FileWatch tells what happens in a directory until its caller leaves. Only what is told counts as activity.
func (d *desk) FileWatch(ctx context.Context, _ mesh.Caller, req runtime.FileWatch, s *stream.Session) (runtime.FileCount, error) {
	if err := supervisor.CheckPath(req.Raw()); err != nil {
		return runtime.FileCount{}, err
	}
	d.use()()
	ctx, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	send := lines(s, func(c supervisor.FileChange) runtime.FileChange {
		out := runtime.FileChange{Kind: string(c.Kind), FilePath: runtime.PathOf(string(c.Path)), Dir: c.Dir}
		if c.Kind == supervisor.ChangeMove {
			from := runtime.PathOf(string(c.From))
			out.From = &from
		}
		return out
	})
	n := runtime.FileCount{}
	err := d.box.Supervisor().Files(d.filesAs()).Watch(ctx, req.Raw(), req.Recursive, time.Duration(req.WindowMS)*time.Millisecond, func(all []supervisor.FileChange) error {
		n.Matches += int64(len(all))
		d.use()()
		return send(all)
	})
	if err != nil {
		err = d.failed(ctx, err)
	}
	return n, err
}

// FileTarOut sends a tree as tar over the channel data.
func (d *desk) FileTarOut(ctx context.Context, _ mesh.Caller, req runtime.FilePath, s *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.TarOut(ctx, req.Raw(), s.Channel(stream.Data))
	}, req)
}

// FileTarIn unpacks the tar that comes over the channel data.
func (d *desk) FileTarIn(ctx context.Context, _ mesh.Caller, req runtime.FilePath, s *stream.Session) (runtime.FileCount, error) {
	return d.onTree(ctx, func(ctx context.Context, f *supervisor.Files) (supervisor.FileCount, error) {
		return f.TarIn(ctx, req.Raw(), s.Channel(stream.Data))
	}, req)
}
