package runtime

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// pageTimeout bounds a page of a list: a directory of millions is read as a whole for each.
const pageTimeout = time.Minute

// fileOperations are those on files, seen from inside with the payload's permissions.
func (d *desk) fileOperations(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		stream.Op(c, runtime.OpRead, d.Read),
		stream.Op(c, runtime.OpWrite, d.Write),
		mesh.Op(runtime.OpFileStat, operationTimeout, d.FileStat),
		mesh.Op(runtime.OpFileList, pageTimeout, d.FileList),
		stream.Op(c, runtime.OpFileRead, d.FileRead),
		stream.Op(c, runtime.OpFileWrite, d.FileWrite),
		stream.Op(c, runtime.OpFileAppend, d.FileAppend),
		mesh.Op(runtime.OpFileMkdir, operationTimeout, d.FileMkdir),
		mesh.Op(runtime.OpFileTouch, operationTimeout, d.FileTouch),
		stream.Op(c, runtime.OpFileMove, d.FileMove),
		stream.Op(c, runtime.OpFileCopy, d.FileCopy),
		stream.Op(c, runtime.OpFileRemove, d.FileRemove),
		stream.Op(c, runtime.OpFileChmod, d.FileChmod),
		stream.Op(c, runtime.OpFileGlob, d.FileGlob),
		stream.Op(c, runtime.OpFileSearch, d.FileSearch),
		stream.Op(c, runtime.OpFileReplace, d.FileReplace),
		stream.Op(c, runtime.OpFileWatch, d.FileWatch),
		stream.Op(c, runtime.OpFileTarOut, d.FileTarOut),
		stream.Op(c, runtime.OpFileTarIn, d.FileTarIn),
	}
}

// onFiles does one operation: its paths are checked, the sandbox's end breaks it off, and it counts as activity.
func onFiles[T any](ctx context.Context, d *desk, do func(context.Context, *supervisor.Files) (T, error), paths ...runtime.FilePath) (out T, err error) {
	defer d.use()()
	for _, p := range paths {
		if err := supervisor.CheckPath(p.Raw()); err != nil {
			return out, err
		}
	}
	ctx, stop := until(ctx, d.box.Gone(), errGone)
	defer stop()
	out, err = do(ctx, d.box.Supervisor().Files(d.filesAs()))
	if err != nil {
		err = d.failed(ctx, err)
	}
	return out, err
}

// Read sends a file's bytes over the channel data.
func (d *desk) Read(ctx context.Context, by mesh.Caller, req runtime.FileRequest, s *stream.Session) (runtime.FileInfo, error) {
	e, err := d.FileRead(ctx, by, runtime.FileRead{FilePath: runtime.FilePath{Path: req.Path}}, s)
	return runtime.FileInfo{Size: e.Size, Mode: e.Mode, ModTime: e.ModTime}, err
}

// Write replaces a file by the bytes that come over the channel data, whole or not at all.
func (d *desk) Write(ctx context.Context, by mesh.Caller, req runtime.FileRequest, s *stream.Session) (runtime.FileInfo, error) {
	w := runtime.FileWrite{FilePath: runtime.FilePath{Path: req.Path}, Mode: req.Mode}
	if w.Mode == 0 {
		w.Mode = 0o644
	}
	e, err := d.FileWrite(ctx, by, w, s)
	return runtime.FileInfo{Size: e.Size, Mode: e.Mode, ModTime: e.ModTime}, err
}

// FileStat describes a file.
func (d *desk) FileStat(ctx context.Context, _ mesh.Caller, req runtime.FileStat) (runtime.FileEntry, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileEntry, error) {
		stat := f.Stat
		if req.NoFollow {
			stat = f.Lstat
		}
		i, err := stat(ctx, req.Raw())
		return fileEntry(i, req.FilePath), err
	}, req.FilePath)
}

// FileList gives a page of a directory, or tree.
func (d *desk) FileList(ctx context.Context, _ mesh.Caller, req runtime.FileList) (runtime.FileListReply, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileListReply, error) {
		q := supervisor.FileQuery{Depth: max(req.Depth, 0), Glob: req.Glob, Limit: req.Limit}
		if req.Depth == 0 {
			q.Depth = 1
		}
		if req.After != nil {
			q.After = supervisor.Text(req.After.Raw())
		}
		page, more, err := f.Entries(ctx, req.Raw(), q)
		out := runtime.FileListReply{Entries: make([]runtime.FileEntry, len(page)), More: more}
		for n, i := range page {
			out.Entries[n] = fileEntry(i, runtime.PathOf(string(i.Path)))
		}
		return out, err
	}, req.FilePath)
}

// FileRead sends a part of a file over the channel data.
func (d *desk) FileRead(ctx context.Context, _ mesh.Caller, req runtime.FileRead, s *stream.Session) (runtime.FileEntry, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileEntry, error) {
		length := int64(-1)
		if req.Length != nil {
			if length = *req.Length; length < 0 {
				return runtime.FileEntry{}, fault.New(fault.Invalid, "length %d is negative; leave it out for all", length)
			}
		}
		r, info, err := f.Read(ctx, req.Raw(), req.Offset, length)
		if err != nil {
			return runtime.FileEntry{}, err
		}
		defer r.Close()
		_, err = io.Copy(s.Channel(stream.Data), r)
		return fileEntry(info, req.FilePath), err
	}, req.FilePath)
}

// FileWrite replaces a file by the bytes that come over the channel data, whole or not at all.
func (d *desk) FileWrite(ctx context.Context, _ mesh.Caller, req runtime.FileWrite, s *stream.Session) (runtime.FileEntry, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileEntry, error) {
		o := supervisor.WriteOptions{Mode: req.Mode & 0o7777, Parents: req.Parents, Keep: req.Keep}
		i, err := f.WriteWith(ctx, req.Raw(), o, s.Channel(stream.Data))
		return fileEntry(i, req.FilePath), err
	}, req.FilePath)
}

// FileAppend adds the bytes that come over the channel data to a file.
func (d *desk) FileAppend(ctx context.Context, _ mesh.Caller, req runtime.FileWrite, s *stream.Session) (runtime.FileEntry, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileEntry, error) {
		if req.Keep {
			return runtime.FileEntry{}, fault.New(fault.Invalid, `"keep" has no meaning here: nothing is replaced`)
		}
		i, err := f.Append(ctx, req.Raw(), supervisor.WriteOptions{Mode: req.Mode & 0o7777, Parents: req.Parents}, s.Channel(stream.Data))
		return fileEntry(i, req.FilePath), err
	}, req.FilePath)
}

// FileMkdir makes a directory.
func (d *desk) FileMkdir(ctx context.Context, _ mesh.Caller, req runtime.FileMkdir) (workspace.Empty, error) {
	if req.Mode == 0 {
		req.Mode = 0o755
	}
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (workspace.Empty, error) {
		return workspace.Empty{}, f.Mkdir(ctx, req.Raw(), req.Mode&0o7777, req.Parents)
	}, req.FilePath)
}

// FileTouch makes a file, or sets its time.
func (d *desk) FileTouch(ctx context.Context, _ mesh.Caller, req runtime.FileTouch) (runtime.FileEntry, error) {
	return onFiles(ctx, d, func(ctx context.Context, f *supervisor.Files) (runtime.FileEntry, error) {
		i, err := f.Touch(ctx, req.Raw(), req.ModTime)
		return fileEntry(i, req.FilePath), err
	}, req.FilePath)
}

// lines sends what an operation tells as JSON, a line for each.
func lines[In, Out any](s *stream.Session, shape func(In) Out) func([]In) error {
	e := json.NewEncoder(s.Channel(stream.Data))
	e.SetEscapeHTML(false)
	return func(all []In) error {
		for _, v := range all {
			if err := e.Encode(shape(v)); err != nil {
				return err
			}
		}
		return nil
	}
}

func fileEntry(i supervisor.FileInfo, p runtime.FilePath) runtime.FileEntry {
	target := runtime.PathOf(string(i.Target))
	return runtime.FileEntry{FilePath: p, Type: string(i.Type), Size: i.Size, Mode: i.Mode, UID: i.UID, GID: i.GID, ModTime: i.ModTime,
		Target: target.Path, TargetB64: target.PathB64}
}

func fileCount(n supervisor.FileCount) runtime.FileCount { return runtime.FileCount(n) }

func absolute(p string) error { return supervisor.CheckPath(p) }

// filesAs is who touches the sandbox's files.
func (d *desk) filesAs() supervisor.Identity { return d.box.Payload() }
