package filesystem

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// upload is a tree that came as tar, in the order of the archive.
type upload struct {
	s      *Service
	b      *chunks.Batch
	into   string
	limit  int64
	bytes  int64
	paths  []string
	byPath map[string]manifest.Entry // relative to the archive
}

// putTar reads a tar stream. Everything that could lead out of the workspace, or that can't be stored, is refused by name, and
// then nothing of the archive is taken.
func (s *Service) putTar(b *chunks.Batch, req wire.PutRequest, r io.Reader, limit int64) (func(*manifest.Editor) error, error) {
	u := &upload{s: s, b: b, into: req.Path, limit: limit, byPath: map[string]manifest.Entry{}}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = u.add(h, tr)
		}
		if err != nil {
			return nil, tarFault(err)
		}
	}
	return func(e *manifest.Editor) error { return u.apply(e, req) }, nil
}

// tarFault tells what is wrong with an archive from what is wrong here.
func tarFault(err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, tar.ErrInsecurePath), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(err, fault.Invalid, "the upload is not a whole tar archive")
	}
	return err
}

// add takes one member.
func (u *upload) add(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	p, err := u.path(h.Name)
	if err != nil {
		return err
	}
	if int64(len(u.paths)) >= u.s.cfg.WorkspaceFiles {
		return fault.New(fault.Exhausted, "the archive has more than %d members", u.s.cfg.WorkspaceFiles)
	}
	e := manifest.Entry{Mode: uint32(h.Mode & 0o777), MTime: h.ModTime.UnixNano()}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Type = manifest.Dir
	case tar.TypeReg, tar.TypeGNUSparse:
		if e, err = u.file(h, e, r); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := checkTarget(p, h.Linkname); err != nil {
			return err
		}
		e.Type, e.Target, e.Mode = manifest.Symlink, h.Linkname, 0o777
	case tar.TypeLink:
		target, err := u.path(h.Linkname)
		if err != nil {
			return err
		}
		old, ok := u.byPath[target]
		if !ok || old.Type != manifest.File {
			return fault.New(fault.Invalid, "%q is a hard link to %q, which is no file earlier in the archive", h.Name, h.Linkname)
		}
		e = old
	default:
		return fault.New(fault.Invalid, "%q is a device, FIFO or of an unknown type; a workspace holds files, directories and symlinks", h.Name)
	}
	if p == "" {
		if e.Type != manifest.Dir {
			return fault.New(fault.Invalid, "the archive names its root as something that is not a directory")
		}
		return nil
	}
	u.paths = append(u.paths, p)
	u.byPath[p] = e
	return nil
}

func (u *upload) file(h *tar.Header, e manifest.Entry, r io.Reader) (manifest.Entry, error) {
	if h.Size > u.limit-u.bytes { // before reading it
		return e, u.tooLarge()
	}
	x, err := manifest.Store(u.b, r, u.limit-u.bytes)
	if errors.Is(err, chunks.ErrTooLong) {
		return e, u.tooLarge()
	}
	if err != nil {
		return e, err
	}
	u.bytes += x.Size
	x.Mode, x.MTime = e.Mode, e.MTime
	return x, nil
}

func (u *upload) tooLarge() error {
	return fault.New(fault.Exhausted, "the archive's files are larger than the workspace's quota of %d bytes", u.limit)
}

// path gives the clean path of a member's name. "./" before and "/" after it are what tar programs write.
func (u *upload) path(name string) (string, error) {
	p := strings.TrimSuffix(name, "/")
	for strings.HasPrefix(p, "./") {
		p = p[2:]
	}
	if p == "." || name == "./" {
		return "", nil
	}
	if _, err := manifest.SplitPath(p); err != nil || p == "" {
		return "", fault.Wrap(err, fault.Invalid, "the archive's member %.200q is refused: a path must be relative, clean and within the archive", name)
	}
	return p, nil
}

// checkTarget refuses a symlink that leads out of the archive's own tree.
func checkTarget(p, target string) error {
	if target == "" || len(target) > manifest.MaxTarget || strings.ContainsRune(target, 0) {
		return fault.New(fault.Invalid, "the symlink %q has a target that is empty or too long", p)
	}
	if path.IsAbs(target) || !within(path.Join(path.Dir(p), target)) {
		return fault.New(fault.Invalid, "the symlink %q leads to %.200q, out of the archive", p, target)
	}
	return nil
}

func within(clean string) bool { return clean != ".." && !strings.HasPrefix(clean, "../") }

// apply puts the members into the head, at the upload's directory.
func (u *upload) apply(e *manifest.Editor, req wire.PutRequest) error {
	old := map[string]bool{}
	if req.Replace {
		if err := e.Remove(u.into); err != nil && !errors.Is(err, manifest.ErrNotFound) {
			return pathFault(u.into, err)
		}
	}
	if u.into != "" {
		dir := manifest.Entry{Type: manifest.Dir, Mode: 0o755, MTime: u.s.cfg.Clock().UnixNano()}
		if have, err := e.Get(u.into); err == nil && have.Type != manifest.Dir {
			return fault.New(fault.Invalid, "%q is not a directory", u.into)
		} else if err != nil {
			if err := e.Set(u.into, dir); err != nil {
				return pathFault(u.into, err)
			}
		}
	}
	for _, p := range u.paths {
		if old[p] { // a later member of the same name wins
			continue
		}
		old[p] = true
		at := manifest.Join(u.into, p)
		if err := checkPath(at); err != nil {
			return err
		}
		if err := e.Set(at, u.byPath[p]); err != nil {
			return pathFault(at, err)
		}
	}
	return nil
}
