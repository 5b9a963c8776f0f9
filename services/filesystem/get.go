package filesystem

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Get writes a file's bytes from Offset on to w, or a directory as a tar stream. What is read is one version, whatever happens to
// the head meanwhile. A symlink is not followed: its entry says where it leads.
func (s *Service) Get(ctx context.Context, by mesh.Caller, req wire.GetRequest, w io.Writer) (wire.Entry, error) {
	sp, e, _, err := s.lookup(ctx, by, req)
	if err != nil {
		return wire.Entry{}, err
	}
	w = &interruptibleWriter{ctx, w}
	switch e.Type {
	case manifest.Dir:
		if req.Offset != 0 {
			return wire.Entry{}, fault.New(fault.Invalid, "a directory comes as tar from its beginning; leave the offset out")
		}
		err = writeTar(sp, e.Hash, w)
	case manifest.Symlink:
		return wire.Entry{}, fault.New(fault.Invalid, "%q is a symlink to %.200q; get what it leads to", req.Path, e.Target)
	default:
		if req.Offset < 0 || req.Offset > e.Size {
			return wire.Entry{}, fault.New(fault.Invalid, "offset %d is outside of the file's %d bytes", req.Offset, e.Size)
		}
		err = copyFile(sp, e, req.Offset, w)
	}
	return toWire(req.Path, e), missing(err)
}

// Stat describes one path.
func (s *Service) Stat(ctx context.Context, by mesh.Caller, req wire.GetRequest) (wire.Entry, error) {
	_, e, _, err := s.lookup(ctx, by, req)
	return toWire(req.Path, e), err
}

// lookup finds what a request names.
func (s *Service) lookup(ctx context.Context, by mesh.Caller, req wire.GetRequest) (*space, manifest.Entry, chunks.Hash, error) {
	var none manifest.Entry
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return nil, none, chunks.Hash{}, err
	}
	if err := checkPath(req.Path); err != nil {
		return nil, none, chunks.Hash{}, err
	}
	root, _, err := s.version(ctx, sp, req.Snapshot)
	if err != nil {
		return nil, none, root, err
	}
	e, err := sp.tree.Lookup(root, req.Path)
	return sp, e, root, pathFault(req.Path, err)
}

func copyFile(sp *space, e manifest.Entry, offset int64, w io.Writer) error {
	r, err := manifest.Open(sp.chunks, e, offset)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return err
}

func writeTar(sp *space, root chunks.Hash, w io.Writer) error {
	tw := tar.NewWriter(w)
	err := sp.tree.Walk(root, func(path string, e manifest.Entry) error {
		h := &tar.Header{Name: path, Mode: int64(e.Mode), ModTime: time.Unix(0, e.MTime), Format: tar.FormatPAX}
		switch e.Type {
		case manifest.Dir:
			h.Typeflag, h.Name = tar.TypeDir, path+"/"
		case manifest.Symlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
		default:
			h.Typeflag, h.Size = tar.TypeReg, e.Size
		}
		if err := tw.WriteHeader(h); err != nil || e.Type != manifest.File {
			return err
		}
		return copyFile(sp, e, 0, tw)
	})
	return errors.Join(err, tw.Close())
}

// missing tells a version that was removed while it was read from damage on the disk: both are ours to say.
func missing(err error) error {
	if errors.Is(err, chunks.ErrMissing) || errors.Is(err, chunks.ErrDamaged) {
		return fault.Wrap(err, fault.Internal, "the stored content is damaged; restore the service's data directory from a backup, or another snapshot")
	}
	return err
}

func toWire(path string, e manifest.Entry) wire.Entry {
	out := wire.Entry{Path: path, Mode: e.Mode, Size: e.Size, MTime: time.Unix(0, e.MTime).UTC(), Target: e.Target}
	switch e.Type {
	case manifest.Dir:
		out.Type = "dir"
	case manifest.Symlink:
		out.Type = "symlink"
	case manifest.File:
		out.Type = "file"
		if e.Size == 0 {
			e.Hash = chunks.Sum(nil)
		}
		out.Hash = e.Hash.String()
	}
	return out
}

// interruptibleWriter ends writing when ctx does.
type interruptibleWriter struct {
	ctx context.Context
	w   io.Writer
}

func (i *interruptibleWriter) Write(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.w.Write(p)
}
