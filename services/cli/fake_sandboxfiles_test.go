package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

func hereFault(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%q: no such file or directory", path)
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.Conflict, "%q: file exists", path)
	}
	return err
}

func entryHere(dir, rel string) (runtime.FileEntry, error) {
	i, err := os.Lstat(filepath.Join(dir, rel))
	if err != nil {
		return runtime.FileEntry{}, hereFault(rel, err)
	}
	e := runtime.FileEntry{FilePath: runtime.PathOf(rel), Type: "file", Size: i.Size(), Mode: uint32(i.Mode().Perm()), UID: 1000, GID: 1000, ModTime: i.ModTime()}
	if i.IsDir() {
		e.Type = "dir"
	}
	return e, nil
}

// hereStream is an operation that opens a stream and ends with a count.
func hereStream[Req any](f *fakeMesh, name string, fn func(ctx context.Context, r Req, st *stream.Session) (runtime.FileCount, error)) mesh.Endpoint {
	return stream.Op(f.node, name, func(ctx context.Context, _ mesh.Caller, r Req, st *stream.Session) (runtime.FileCount, error) {
		return fn(ctx, r, st)
	})
}

func writeHere(f *fakeMesh, dir, name string, flags int) mesh.Endpoint {
	return stream.Op(f.node, name, func(_ context.Context, _ mesh.Caller, r runtime.FileWrite, st *stream.Session) (runtime.FileEntry, error) {
		if r.Keep {
			flags |= os.O_EXCL
		}
		w, err := os.OpenFile(dir+r.Path, os.O_WRONLY|os.O_CREATE|flags, 0o644)
		if err != nil {
			return runtime.FileEntry{}, hereFault(r.Path, err)
		}
		_, err = w.ReadFrom(st.Channel(stream.Data))
		if err = errors.Join(err, w.Close()); err != nil {
			return runtime.FileEntry{}, err
		}
		return entryHere(dir, r.Path)
	})
}

// sandboxFiles are a sandbox's files in a directory of this machine. Trees as tar are where they say.
func (f *fakeMesh) sandboxFiles(dir string) []mesh.Endpoint {
	tell := func(st *stream.Session, v any) error { return json.NewEncoder(st.Channel(stream.Data)).Encode(v) }
	return []mesh.Endpoint{
		op(runtime.OpFileStat, func(_ mesh.Caller, r runtime.FileStat) (runtime.FileEntry, error) { return entryHere(dir, r.Path) }),
		op(runtime.OpFileList, func(_ mesh.Caller, r runtime.FileList) (out runtime.FileListReply, err error) {
			err = filepath.WalkDir(dir+r.Path, func(p string, _ fs.DirEntry, err error) error {
				rel, _ := filepath.Rel(dir+r.Path, p)
				if err == nil && r.Depth >= 0 && strings.Contains(rel, "/") {
					return nil
				}
				if err != nil || rel == "." || r.After != nil && rel <= r.After.Path || len(out.Entries) == 1 {
					out.More = out.More || len(out.Entries) == 1
					return err
				}
				e, err := entryHere(dir+r.Path, rel)
				out.Entries = append(out.Entries, e)
				return err
			})
			return out, hereFault(r.Path, err)
		}),
		stream.Op(f.node, runtime.OpFileRead, func(_ context.Context, _ mesh.Caller, r runtime.FileRead, st *stream.Session) (runtime.FileEntry, error) {
			b, err := os.ReadFile(dir + r.Path)
			if err != nil {
				return runtime.FileEntry{}, hereFault(r.Path, err)
			}
			if b = b[r.Offset:]; r.Length != nil {
				b = b[:*r.Length]
			}
			_, err = st.Channel(stream.Data).Write(b)
			return runtime.FileEntry{FilePath: r.FilePath}, err
		}),
		writeHere(f, dir, runtime.OpFileWrite, os.O_TRUNC),
		writeHere(f, dir, runtime.OpFileAppend, os.O_APPEND),
		op(runtime.OpFileMkdir, func(_ mesh.Caller, r runtime.FileMkdir) (workspace.Empty, error) {
			return workspace.Empty{}, hereFault(r.Path, os.Mkdir(dir+r.Path, fs.FileMode(r.Mode|0o700)))
		}),
		op(runtime.OpFileTouch, func(_ mesh.Caller, r runtime.FileTouch) (runtime.FileEntry, error) {
			return runtime.FileEntry{FilePath: r.FilePath}, os.WriteFile(dir+r.Path, nil, 0o644)
		}),
		hereStream(f, runtime.OpFileMove, func(_ context.Context, r runtime.FileMove, _ *stream.Session) (runtime.FileCount, error) {
			return runtime.FileCount{}, hereFault(r.From.Path, os.Rename(dir+r.From.Path, dir+r.To.Path))
		}),
		hereStream(f, runtime.OpFileCopy, func(_ context.Context, r runtime.FileMove, _ *stream.Session) (runtime.FileCount, error) {
			return runtime.FileCount{Files: 2, Dirs: 1, Skipped: 1}, os.CopyFS(dir+r.To.Path, os.DirFS(dir+r.From.Path))
		}),
		hereStream(f, runtime.OpFileRemove, func(_ context.Context, r runtime.FileRemove, _ *stream.Session) (runtime.FileCount, error) {
			if !r.Recursive {
				return runtime.FileCount{Files: 1}, hereFault(r.Path, os.Remove(dir+r.Path))
			}
			return runtime.FileCount{Files: 2, Dirs: 1}, os.RemoveAll(dir + r.Path)
		}),
		hereStream(f, runtime.OpFileChmod, func(_ context.Context, r runtime.FileChmod, _ *stream.Session) (runtime.FileCount, error) {
			return runtime.FileCount{Files: 1}, hereFault(r.Path, os.Chmod(dir+r.Path, fs.FileMode(r.Mode)))
		}),
		hereStream(f, runtime.OpFileGlob, func(_ context.Context, r runtime.FileGlob, st *stream.Session) (runtime.FileCount, error) {
			found, err := filepath.Glob(filepath.Join(dir+r.Path, r.Glob))
			for _, p := range found {
				rel, _ := filepath.Rel(dir+r.Path, p)
				e, eerr := entryHere(dir+r.Path, rel)
				err = errors.Join(err, eerr, tell(st, e))
			}
			return runtime.FileCount{Truncated: true}, err
		}),
		hereStream(f, runtime.OpFileSearch, func(_ context.Context, r runtime.FileSearch, st *stream.Session) (runtime.FileCount, error) {
			b, err := os.ReadFile(dir + r.Path)
			re, cerr := regexp.Compile(r.Pattern)
			if cerr != nil {
				return runtime.FileCount{}, fault.New(fault.Invalid, "pattern %q: %v", r.Pattern, cerr)
			}
			lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			for i, l := range lines {
				if re.MatchString(l) {
					err = errors.Join(err, tell(st, runtime.FileMatch{FilePath: runtime.PathOf("found.txt"), Line: i + 1, Column: 1, Text: l,
						Before: lines[max(0, i-r.Context):i], After: lines[i+1 : min(len(lines), i+1+r.Context)]}))
				}
			}
			return runtime.FileCount{}, err
		}),
		hereStream(f, runtime.OpFileReplace, func(_ context.Context, r runtime.FileReplace, st *stream.Session) (runtime.FileCount, error) {
			err := tell(st, runtime.FileReplaced{FilePath: runtime.PathOf("a"), Count: 3})
			if len(r.Paths) > 0 {
				err = errors.Join(err, tell(st, runtime.FileReplaced{FilePath: r.Paths[0], Code: "conflict", Message: r.Paths[0].Path + " was changed meanwhile"}))
			}
			return runtime.FileCount{Files: 1, Matches: 3}, err
		}),
		hereStream(f, runtime.OpFileWatch, func(_ context.Context, r runtime.FileWatch, st *stream.Session) (runtime.FileCount, error) {
			from := runtime.PathOf("old")
			return runtime.FileCount{}, errors.Join(tell(st, runtime.FileChange{Kind: "ready"}), tell(st, runtime.FileChange{Kind: "create", FilePath: runtime.PathOf("a/b")}),
				tell(st, runtime.FileChange{Kind: "move", FilePath: runtime.PathOf("new"), From: &from, Dir: true}), tell(st, runtime.FileChange{Kind: "gone"}))
		}),
		hereStream(f, runtime.OpFileTarOut, func(ctx context.Context, r runtime.FilePath, st *stream.Session) (runtime.FileCount, error) {
			out, err := exec.CommandContext(ctx, "tar", "-C", r.Path, "-cf", "-", ".").Output()
			if err != nil {
				return runtime.FileCount{}, fault.New(fault.NotFound, "%q: no such file or directory", r.Path)
			}
			_, err = st.Channel(stream.Data).Write(out)
			return runtime.FileCount{Files: 1}, err
		}),
		hereStream(f, runtime.OpFileTarIn, func(ctx context.Context, r runtime.FilePath, st *stream.Session) (runtime.FileCount, error) {
			if err := os.MkdirAll(r.Path, 0o755); err != nil {
				return runtime.FileCount{}, err
			}
			var said bytes.Buffer
			c := exec.CommandContext(ctx, "tar", "-C", r.Path, "-xf", "-")
			c.Stdin, c.Stderr = st.Channel(stream.Data), &said
			if err := c.Run(); err != nil {
				return runtime.FileCount{}, fault.New(fault.Invalid, "this is no tar that can be read: %s", said.String())
			}
			return runtime.FileCount{Files: 1, Dirs: 1, Links: 1}, nil
		}),
	}
}
