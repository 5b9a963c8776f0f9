package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// SandboxFiles are the files of one sandbox, seen from inside with its payload's permissions. Paths are
// absolute; what is found in a tree has paths relative to its top.
type SandboxFiles struct {
	c  *Client
	id string
}

// SandboxFiles gives the files of a sandbox.
func (c *Client) SandboxFiles(sandbox string) *SandboxFiles { return &SandboxFiles{c, sandbox} }

func askFiles[Rep any](ctx context.Context, f *SandboxFiles, op string, req any) (rep Rep, err error) {
	subject, err := f.c.sbx(f.id, op)
	if err != nil {
		return rep, err
	}
	if rep, err = mesh.Request[Rep](ctx, f.c.conn, subject, req); fault.Is(err, fault.Unavailable) {
		err = f.c.whyAway(ctx, f.id, err)
	}
	return rep, err
}

// Stat describes a file; with NoFollow a symbolic link itself.
func (f *SandboxFiles) Stat(ctx context.Context, r runtime.FileStat) (runtime.FileEntry, error) {
	return askFiles[runtime.FileEntry](ctx, f, runtime.OpFileStat, r)
}

// List gives up to limit entries in the order of their paths, 0 is all, page by page.
func (f *SandboxFiles) List(ctx context.Context, r runtime.FileList, limit int, each func(runtime.FileEntry) error) error {
	for n := 0; ; {
		if limit > 0 {
			r.Limit = min(limit-n, 1000)
		}
		page, err := askFiles[runtime.FileListReply](ctx, f, runtime.OpFileList, r)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if err := each(e); err != nil {
				return err
			}
		}
		n += len(page.Entries)
		if !page.More || len(page.Entries) == 0 || limit > 0 && n >= limit {
			return nil
		}
		r.After = &page.Entries[len(page.Entries)-1].FilePath
	}
}

// Read copies a part of a file to w.
func (f *SandboxFiles) Read(ctx context.Context, r runtime.FileRead, w io.Writer) (e runtime.FileEntry, err error) {
	s, err := f.c.openSandbox(ctx, f.id, runtime.OpFileRead, r)
	if err != nil {
		return e, err
	}
	_, err = receive(ctx, s, w, &e)
	return e, err
}

// Write replaces a file by what r gives, all of it or nothing.
func (f *SandboxFiles) Write(ctx context.Context, w runtime.FileWrite, r io.Reader) (e runtime.FileEntry, err error) {
	err = f.send(ctx, runtime.OpFileWrite, w, r, &e)
	return e, err
}

// Append adds what r gives to a file.
func (f *SandboxFiles) Append(ctx context.Context, w runtime.FileWrite, r io.Reader) (e runtime.FileEntry, err error) {
	err = f.send(ctx, runtime.OpFileAppend, w, r, &e)
	return e, err
}

func (f *SandboxFiles) send(ctx context.Context, op string, req any, r io.Reader, result any) error {
	s, err := f.c.openSandbox(ctx, f.id, op, req)
	if err != nil {
		return err
	}
	_, err = send(ctx, s, r, result)
	return err
}

// Mkdir makes a directory.
func (f *SandboxFiles) Mkdir(ctx context.Context, r runtime.FileMkdir) error {
	_, err := askFiles[workspace.Empty](ctx, f, runtime.OpFileMkdir, r)
	return err
}

// Touch makes a file if it is missing, and sets its time of change.
func (f *SandboxFiles) Touch(ctx context.Context, path runtime.FilePath, at *time.Time) (runtime.FileEntry, error) {
	return askFiles[runtime.FileEntry](ctx, f, runtime.OpFileTouch, runtime.FileTouch{FilePath: path, ModTime: at})
}

// Move moves a file or tree.
func (f *SandboxFiles) Move(ctx context.Context, r runtime.FileMove) (runtime.FileCount, error) {
	return f.count(ctx, runtime.OpFileMove, r)
}

// Copy copies a file or tree.
func (f *SandboxFiles) Copy(ctx context.Context, r runtime.FileMove) (runtime.FileCount, error) {
	return f.count(ctx, runtime.OpFileCopy, r)
}

// Remove removes a file or tree.
func (f *SandboxFiles) Remove(ctx context.Context, r runtime.FileRemove) (runtime.FileCount, error) {
	return f.count(ctx, runtime.OpFileRemove, r)
}

// Chmod sets permission bits.
func (f *SandboxFiles) Chmod(ctx context.Context, r runtime.FileChmod) (runtime.FileCount, error) {
	return f.count(ctx, runtime.OpFileChmod, r)
}

// count is for operations that answer with nothing but a count.
func (f *SandboxFiles) count(ctx context.Context, op string, req any) (runtime.FileCount, error) {
	return each(ctx, f, op, req, func(struct{}) error { return nil })
}

// each is for operations that tell a thing a line. An error of do breaks the operation off.
func each[T any](ctx context.Context, f *SandboxFiles, op string, req any, do func(T) error) (n runtime.FileCount, err error) {
	s, err := f.c.openSandbox(ctx, f.id, op, req)
	if err != nil {
		return n, err
	}
	defer func() { _ = s.Close() }()
	d := json.NewDecoder(s.Channel(stream.Data))
	for {
		var v T
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return n, s.Result(ctx, &n)
		}
		if err != nil {
			return n, err
		}
		if err := do(v); err != nil {
			return n, err
		}
	}
}

// Glob gives the entries of a tree whose paths match.
func (f *SandboxFiles) Glob(ctx context.Context, r runtime.FileGlob, do func(runtime.FileEntry) error) (runtime.FileCount, error) {
	return each(ctx, f, runtime.OpFileGlob, r, do)
}

// Search gives the lines of a tree's text files, or of one file, that match.
func (f *SandboxFiles) Search(ctx context.Context, r runtime.FileSearch, do func(runtime.FileMatch) error) (runtime.FileCount, error) {
	return each(ctx, f, runtime.OpFileSearch, r, do)
}

// Replace replaces in text files and gives what became of each.
func (f *SandboxFiles) Replace(ctx context.Context, r runtime.FileReplace, do func(runtime.FileReplaced) error) (runtime.FileCount, error) {
	return each(ctx, f, runtime.OpFileReplace, r, do)
}

// Watch gives what happens in a directory, the change "ready" first, until ctx ends, do fails, or the directory is gone.
func (f *SandboxFiles) Watch(ctx context.Context, r runtime.FileWatch, do func(runtime.FileChange) error) error {
	_, err := each(ctx, f, runtime.OpFileWatch, r, do)
	return err
}

// TarOut copies a tree, or a file, as tar to w.
func (f *SandboxFiles) TarOut(ctx context.Context, path runtime.FilePath, w io.Writer) (n runtime.FileCount, err error) {
	s, err := f.c.openSandbox(ctx, f.id, runtime.OpFileTarOut, path)
	if err != nil {
		return n, err
	}
	_, err = receive(ctx, s, w, &n)
	return n, err
}

// TarIn unpacks the tar that r gives below a directory, which is made if it is missing.
func (f *SandboxFiles) TarIn(ctx context.Context, path runtime.FilePath, r io.Reader) (n runtime.FileCount, err error) {
	err = f.send(ctx, runtime.OpFileTarIn, path, r, &n)
	return n, err
}
