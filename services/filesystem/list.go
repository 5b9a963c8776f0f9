package filesystem

import (
	"context"
	"errors"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// pageBytes is roughly how large a page may be as JSON: a reply is at most 1 MiB.
const pageBytes = 600 << 10

// errFull ends a walk when the page is full.
var errFull = errors.New("page is full")

// List gives a directory, or a whole tree, page by page. Paths are sorted component by component, which is the order of a walk. The
// reply names the snapshot: a caller who asks for the next page of it sees one version.
func (s *Service) List(ctx context.Context, by mesh.Caller, req wire.ListRequest) (wire.ListReply, error) {
	var rep wire.ListReply
	limit, err := pageLimit(req.Limit)
	if err != nil {
		return rep, err
	}
	if err := errors.Join(checkPath(req.Path), checkPath(req.Cursor)); err != nil {
		return rep, err
	}
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return rep, err
	}
	root, id, err := s.version(ctx, sp, req.Snapshot)
	if err != nil {
		return rep, err
	}
	rep.Snapshot, rep.Entries = id, []wire.Entry{}
	top, err := sp.tree.Lookup(root, req.Path)
	if err != nil {
		return rep, pathFault(req.Path, err)
	}
	if top.Type != manifest.Dir {
		rep.Entries = append(rep.Entries, toWire(req.Path, top))
		return rep, nil
	}
	size := 0
	err = sp.tree.WalkFrom(top.Hash, below(req.Cursor, req.Path), func(p string, e manifest.Entry) error {
		path := manifest.Join(req.Path, p)
		if req.Cursor != "" && comparePaths(path, req.Cursor) <= 0 {
			return skipUnless(e, req.Recursive && strings.HasPrefix(req.Cursor, path+"/") || req.Recursive && path == req.Cursor)
		}
		if size += len(path) + len(e.Target) + 200; len(rep.Entries) == limit || size > pageBytes && len(rep.Entries) > 0 {
			rep.Cursor = rep.Entries[len(rep.Entries)-1].Path
			return errFull
		}
		rep.Entries = append(rep.Entries, toWire(path, e))
		return skipUnless(e, req.Recursive)
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return rep, missing(err)
}

// below is a cursor relative to dir; a walk begins at the beginning where it lies elsewhere.
func below(cursor, dir string) string {
	if dir == "" {
		return cursor
	}
	rest, ok := strings.CutPrefix(cursor, dir+"/")
	if !ok {
		return ""
	}
	return rest
}

// skipUnless leaves out what is in a directory.
func skipUnless(e manifest.Entry, enter bool) error {
	if e.Type == manifest.Dir && !enter {
		return manifest.ErrSkipDir
	}
	return nil
}

func pageLimit(n int) (int, error) {
	switch {
	case n == 0:
		return 1000, nil
	case n < 1 || n > 10_000:
		return 0, fault.New(fault.Invalid, "limit %d must be 1 to 10,000", n)
	}
	return n, nil
}

// comparePaths orders paths as a walk meets them: component by component.
func comparePaths(a, b string) int {
	for {
		x, restA, moreA := strings.Cut(a, "/")
		y, restB, moreB := strings.Cut(b, "/")
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		switch {
		case !moreA && !moreB:
			return 0
		case !moreA:
			return -1
		case !moreB:
			return 1
		}
		a, b = restA, restB
	}
}
