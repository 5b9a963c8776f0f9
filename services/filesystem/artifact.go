package filesystem

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// source is a further file for an artifact: its name in the zip, the spool directory, and its path in that.
type source struct{ name, dir, path string }

// maxSources bounds what a merge may bring beside the changed files.
const maxSources = 100

// checkSources takes only files below the spool directories, whatever a node asks for.
func (s *Service) checkSources(in []wire.Source) ([]source, error) {
	if len(in) > maxSources {
		return nil, fault.New(fault.Invalid, "an artifact takes at most %d further files", maxSources)
	}
	var out []source
	for _, a := range in {
		if parts, err := manifest.SplitPath(a.Name); err != nil || len(parts) == 0 || parts[0] == "files" || a.Name == summaryName {
			return nil, fault.New(fault.Invalid, "%.200q can't be the name of a further file in an artifact", a.Name)
		}
		src, ok := source{}, false
		for _, dir := range s.cfg.SpoolDirs {
			if rel, err := filepath.Rel(dir, a.Path); err == nil && filepath.IsLocal(rel) && filepath.IsAbs(a.Path) {
				src, ok = source{a.Name, dir, rel}, true
			}
		}
		if !ok {
			return nil, fault.New(fault.Denied, "%.200q does not lie in a spool directory of this node", a.Path)
		}
		out = append(out, src)
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// summaryName is the member that says what the attempt did.
const summaryName = "changes.json"

// summary is that member.
type summary struct {
	Task      string   `json:"task"`
	Attempt   int      `json:"attempt"`
	Kept      bool     `json:"kept"` // the changes went into the head
	Snapshot  string   `json:"snapshot,omitempty"`
	Added     []string `json:"added"`
	Modified  []string `json:"modified"`
	Removed   []string `json:"removed"`
	Conflicts []string `json:"conflicts,omitempty"`
	Skipped   []string `json:"skipped,omitempty"`
	Omitted   []string `json:"omitted,omitempty"` // from the zip, for its size
}

// makeArtifact zips the changed files and the sources, in an order that depends on nothing but their names, and
// records it. Made again for the same attempt it replaces itself. Nothing to put in is no artifact: an empty id.
func (s *Service) makeArtifact(ctx context.Context, sp *space, b *chunks.Batch, view *manifest.Tree, req wire.Merge, diff difference, sources []source, out wire.Merged) (string, error) {
	if len(diff) == 0 && len(sources) == 0 {
		return "", nil
	}
	id := schemas.DerivedID("artifact", sp.owner, sp.name, req.Owner, itoa(req.Attempt))
	dir, err := s.artifactDir(sp)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	z := &zipper{ctx: ctx, src: b, left: s.cfg.ArtifactBytes, sum: summary{
		Task: req.Owner, Attempt: req.Attempt, Kept: req.Keep, Snapshot: out.Snapshot, Conflicts: out.Conflicts, Skipped: out.Skipped,
		Added: []string{}, Modified: []string{}, Removed: []string{},
	}}
	a, err := z.write(dir, id+".zip", diff, sources)
	if err != nil {
		return "", fmt.Errorf("artifact of %s: %w", req.Owner, err)
	}
	a.ID, a.Workspace, a.Task, a.Attempt, a.CreatedAt = id, sp.name, req.Owner, req.Attempt, s.cfg.Clock().UTC()
	_, err = s.cfg.Records.Artifacts.Write(ctx, sp.key(id), 0, eventCreated, a)
	if fault.Is(err, fault.Conflict) { // recorded by a try that was killed later
		r, gerr := s.cfg.Records.Artifacts.Get(ctx, sp.key(id))
		if gerr != nil {
			return "", gerr
		}
		_, err = s.cfg.Records.Artifacts.Write(ctx, sp.key(id), r.Sequence, eventCreated, a)
	}
	return id, err
}

func (s *Service) artifactDir(sp *space) (*os.Root, error) {
	path := s.path("artifacts", sp.owner, sp.name)
	if err := dirs.MkdirDurable(path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// zipper writes one artifact.
type zipper struct {
	ctx   context.Context
	src   manifest.Source
	left  int64 // bytes of contents that still fit
	files int
	zw    *zip.Writer
	sum   summary
}

// write makes the file durable before its name is.
func (z *zipper) write(dir *os.Root, name string, diff difference, sources []source) (wire.Artifact, error) {
	var a wire.Artifact
	f, err := dir.OpenFile(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return a, err
	}
	hash := sha256.New()
	count := &counter{w: io.MultiWriter(f, hash)}
	z.zw = zip.NewWriter(count)
	err = z.members(diff, sources)
	if err == nil {
		err = z.zw.Close()
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = dir.Rename(name+".tmp", name)
	}
	if err != nil {
		return a, errors.Join(err, dir.Remove(name+".tmp"))
	}
	a.Bytes, a.Files, a.Hash = count.n, z.files, hex.EncodeToString(hash.Sum(nil))
	return a, syncDir(dir)
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (z *zipper) members(diff difference, sources []source) error {
	for _, s := range sources { // first: who looks for the logs finds them even where the files were too many
		if err := z.spooled(s); err != nil {
			return err
		}
	}
	for _, c := range diff {
		if err := z.changed(c); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(z.sum, "", "  ")
	if err != nil {
		return err
	}
	w, err := z.zw.CreateHeader(&zip.FileHeader{Name: summaryName, Method: zip.Deflate})
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

func (z *zipper) changed(c manifest.Change) error {
	switch {
	case c.To == nil:
		if c.From.Type != manifest.Dir {
			z.sum.Removed = append(z.sum.Removed, c.Path)
		}
		return nil
	case c.To.Type == manifest.Dir:
		return nil
	case c.From == nil:
		z.sum.Added = append(z.sum.Added, c.Path)
	default:
		z.sum.Modified = append(z.sum.Modified, c.Path)
	}
	h := &zip.FileHeader{Name: "files/" + c.Path, Method: zip.Deflate, Modified: time.Unix(0, c.To.MTime).UTC()}
	if c.To.Type == manifest.Symlink {
		h.SetMode(fs.ModeSymlink | 0o777)
		return z.member(h, int64(len(c.To.Target)), strings.NewReader(c.To.Target))
	}
	h.SetMode(fs.FileMode(c.To.Mode))
	r, err := manifest.Open(z.src, *c.To, 0)
	if err != nil {
		return err
	}
	return z.member(h, c.To.Size, r)
}

// spooled adds a file of the spool as it is now. One that is not there was never written to.
func (z *zipper) spooled(s source) error {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%q is not a regular file", s.name)
	}
	h := &zip.FileHeader{Name: s.name, Method: zip.Deflate, Modified: st.ModTime().UTC()}
	h.SetMode(0o644)
	return z.member(h, st.Size(), io.LimitReader(f, st.Size()))
}

// member adds one file of at most size bytes, or notes that it does not fit.
func (z *zipper) member(h *zip.FileHeader, size int64, r io.Reader) error {
	if err := z.ctx.Err(); err != nil {
		return err
	}
	if size > z.left {
		z.sum.Omitted = append(z.sum.Omitted, h.Name)
		return nil
	}
	z.left -= size
	z.files++
	w, err := z.zw.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	return err
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
