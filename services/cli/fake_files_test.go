package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// tree is a workspace's files: content by path.
type tree map[string][]byte

// snap is one version of a tree; the last one of a workspace is its head.
type snap struct {
	filesystem.Snapshot
	tree tree
}

func (f *fakeMesh) commit(by mesh.Caller, t tree, message string) snap {
	s := snap{filesystem.Snapshot{ID: schemas.NewID(), Workspace: by.Workspace, Principal: by.Principal, Message: message, Files: len(t), CreatedAt: time.Now()}, t}
	for _, b := range t {
		s.Bytes += int64(len(b))
	}
	f.snaps = append(f.snaps, s)
	f.files[by.Workspace] = t
	return s
}

func (f *fakeMesh) at(by mesh.Caller, id string) (tree, error) {
	if id == "" {
		return f.files[by.Workspace], nil
	}
	for _, s := range f.snaps {
		if s.ID == id {
			return s.tree, nil
		}
	}
	return nil, fault.New(fault.NotFound, "no snapshot %q", id)
}

// entry describes a path: a directory if there is something below it.
func entry(t tree, path string) (filesystem.Entry, error) {
	if b, ok := t[path]; ok {
		return filesystem.Entry{Path: path, Type: "file", Mode: 0o644, Size: int64(len(b)), MTime: time.Now()}, nil
	}
	for p := range t {
		if path == "" || strings.HasPrefix(p, path+"/") {
			return filesystem.Entry{Path: path, Type: "dir", Mode: 0o755}, nil
		}
	}
	return filesystem.Entry{}, fault.New(fault.NotFound, "no file %q", path)
}

func putReply(s snap) filesystem.PutReply {
	return filesystem.PutReply{Snapshot: s.ID, Files: s.Files, Bytes: s.Bytes}
}

func (f *fakeMesh) filesystemOps(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		op(filesystem.OpList, func(by mesh.Caller, r filesystem.ListRequest) (filesystem.ListReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t, err := f.at(by, r.Snapshot)
			var out []filesystem.Entry
			seen := map[string]bool{}
			for _, p := range slices.Sorted(maps.Keys(t)) {
				rest, ok := strings.CutPrefix(p, strings.TrimPrefix(r.Path+"/", "/"))
				if !ok {
					continue
				}
				if first, _, deep := strings.Cut(rest, "/"); deep && !r.Recursive {
					p = strings.TrimSuffix(p, rest) + first
				}
				if e, err := entry(t, p); err == nil && !seen[p] {
					out, seen[p] = append(out, e), true
				}
			}
			return filesystem.ListReply{Entries: out}, err
		}),
		op(filesystem.OpStat, func(by mesh.Caller, r filesystem.GetRequest) (filesystem.Entry, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t, err := f.at(by, r.Snapshot)
			if err != nil {
				return filesystem.Entry{}, err
			}
			return entry(t, r.Path)
		}),
		op(filesystem.OpRemove, func(by mesh.Caller, r filesystem.RemoveRequest) (filesystem.PutReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t := maps.Clone(f.files[by.Workspace])
			if _, err := entry(t, r.Path); err != nil {
				return filesystem.PutReply{}, err
			}
			maps.DeleteFunc(t, func(p string, _ []byte) bool { return p == r.Path || strings.HasPrefix(p, r.Path+"/") })
			return putReply(f.commit(by, t, "")), nil
		}),
		stream.Op(c, filesystem.OpGet, func(_ context.Context, by mesh.Caller, r filesystem.GetRequest, s *stream.Session) (filesystem.Entry, error) {
			f.mu.Lock()
			t, err := f.at(by, r.Snapshot)
			f.mu.Unlock()
			if err != nil {
				return filesystem.Entry{}, err
			}
			e, err := entry(t, r.Path)
			if err != nil {
				return e, err
			}
			if e.Type == "file" {
				_, err = s.Channel(stream.Data).Write(t[r.Path])
				return e, err
			}
			w := tar.NewWriter(s.Channel(stream.Data))
			for _, p := range slices.Sorted(maps.Keys(t)) {
				if rest, ok := strings.CutPrefix(p, strings.TrimPrefix(r.Path+"/", "/")); ok {
					_ = w.WriteHeader(&tar.Header{Name: rest, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(t[p]))})
					_, _ = w.Write(t[p])
				}
			}
			return e, w.Close()
		}),
		stream.Op(c, filesystem.OpPut, func(_ context.Context, by mesh.Caller, r filesystem.PutRequest, s *stream.Session) (filesystem.PutReply, error) {
			b, err := io.ReadAll(s.Channel(stream.Data))
			if err != nil {
				return filesystem.PutReply{}, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			t := maps.Clone(f.files[by.Workspace])
			if t == nil {
				t = tree{}
			}
			if !r.Tar {
				t[r.Path] = b
				return putReply(f.commit(by, t, "")), nil
			}
			if r.Replace {
				maps.DeleteFunc(t, func(p string, _ []byte) bool { return strings.HasPrefix(p, r.Path+"/") })
			}
			for tr := tar.NewReader(bytes.NewReader(b)); ; {
				h, err := tr.Next()
				if errors.Is(err, io.EOF) {
					return putReply(f.commit(by, t, "")), nil
				}
				if err != nil {
					return filesystem.PutReply{}, fault.New(fault.Invalid, "not a tar: %v", err)
				}
				if h.Typeflag == tar.TypeReg {
					c, _ := io.ReadAll(tr)
					t[strings.TrimPrefix(r.Path+"/"+h.Name, "/")] = c
				}
			}
		}),
		op(filesystem.OpSnapshot, func(by mesh.Caller, r filesystem.SnapshotRequest) (filesystem.Snapshot, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.commit(by, maps.Clone(f.files[by.Workspace]), r.Message).Snapshot, nil
		}),
		op(filesystem.OpSnapshotList, func(by mesh.Caller, _ filesystem.SnapshotListRequest) (filesystem.SnapshotListReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []filesystem.Snapshot
			for _, s := range slices.Backward(f.snaps) {
				if s.Workspace == by.Workspace {
					out = append(out, s.Snapshot)
				}
			}
			return filesystem.SnapshotListReply{Snapshots: out}, nil
		}),
		op(filesystem.OpSnapshotDiff, func(by mesh.Caller, r filesystem.DiffRequest) (filesystem.DiffReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			a, err := f.at(by, r.From)
			b, err2 := f.at(by, r.To)
			return filesystem.DiffReply{Changes: diff(a, b)}, errors.Join(err, err2)
		}),
		op(filesystem.OpSnapshotRestore, func(by mesh.Caller, r filesystem.RestoreRequest) (filesystem.Head, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t, err := f.at(by, r.Snapshot)
			if err != nil {
				return filesystem.Head{}, err
			}
			s := f.commit(by, maps.Clone(t), "")
			return filesystem.Head{Snapshot: s.ID, Files: s.Files, Bytes: s.Bytes}, nil
		}),
		op(filesystem.OpArtifactList, func(mesh.Caller, filesystem.SnapshotListRequest) (workspace.Page[filesystem.Artifact], error) {
			return page([]filesystem.Artifact{{ID: "art0000000000000000a", Task: "0123456789abcdefghij", Attempt: 1, Files: 2, Bytes: 9}}), nil
		}),
		stream.Op(c, filesystem.OpArtifactGet, func(_ context.Context, _ mesh.Caller, r workspace.ID, s *stream.Session) (filesystem.Artifact, error) {
			_, _ = s.Channel(stream.Data).Write([]byte("half of a"))
			if r.ID != "art0000000000000000a" {
				return filesystem.Artifact{}, fault.New(fault.NotFound, "no artifact %q", r.ID)
			}
			return filesystem.Artifact{ID: r.ID, Files: 2, Bytes: 9}, nil
		}),
	}
}

func diff(a, b tree) []filesystem.Change {
	out := []filesystem.Change{}
	for p := range a {
		switch c, ok := b[p]; {
		case !ok:
			out = append(out, filesystem.Change{Path: p, Kind: "removed"})
		case !bytes.Equal(c, a[p]):
			out = append(out, filesystem.Change{Path: p, Kind: "modified"})
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			out = append(out, filesystem.Change{Path: p, Kind: "added"})
		}
	}
	slices.SortFunc(out, func(x, y filesystem.Change) int { return strings.Compare(x.Path, y.Path) })
	return out
}
