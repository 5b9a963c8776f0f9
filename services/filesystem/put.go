package filesystem

import (
	"context"
	"errors"
	"io"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Put writes what r gives into the head: one file, or with Tar a tree. The head changes once, when everything has arrived; an upload
// that breaks off changes nothing. Putting the same again makes no new version.
func (s *Service) Put(ctx context.Context, by mesh.Caller, req wire.PutRequest, r io.Reader) (wire.PutReply, error) {
	sp, limit, err := s.caller(ctx, by)
	if err != nil {
		return wire.PutReply{}, err
	}
	if err := s.checkPut(req); err != nil {
		return wire.PutReply{}, err
	}
	b := sp.chunks.Batch()
	defer b.Abort()
	// The bytes come in before the lock is taken: a slow upload holds up nobody.
	r = &interruptible{ctx, r}
	var apply func(e *manifest.Editor) error
	if req.Tar {
		apply, err = s.putTar(b, req, r, limit)
	} else {
		apply, err = s.putFile(b, req, r, limit)
	}
	if err != nil {
		return wire.PutReply{}, storeFault(err)
	}
	st, err := s.edit(ctx, sp, b, limit, change{event: eventPut, principal: by.Principal}, func(st state, e *manifest.Editor) error {
		if req.IfParent != "" && req.IfParent != st.Value.Snapshot {
			return fault.New(fault.Conflict, "the head is snapshot %s, not %s; look at what changed, then put again", st.Value.Snapshot, req.IfParent)
		}
		return apply(e)
	})
	return putReply(st), storeFault(err)
}

func (s *Service) checkPut(req wire.PutRequest) error {
	if err := checkPath(req.Path); err != nil {
		return err
	}
	switch {
	case req.Path == "" && !req.Tar:
		return fault.New(fault.Invalid, "a file needs a path")
	case req.Replace && !req.Tar:
		return fault.New(fault.Invalid, "replace is for trees; a file is always replaced")
	case req.Mode > 0o777:
		return fault.New(fault.Invalid, "mode %o must be permission bits, at most 777", req.Mode)
	case req.IfParent != "":
		return checkID("if_parent", req.IfParent)
	}
	return nil
}

func (s *Service) putFile(b *chunks.Batch, req wire.PutRequest, r io.Reader, limit int64) (func(*manifest.Editor) error, error) {
	x, err := manifest.Store(b, r, limit)
	if errors.Is(err, chunks.ErrTooLong) {
		return nil, fault.New(fault.Exhausted, "the file is larger than the workspace's quota of %d bytes", limit)
	}
	if err != nil {
		return nil, err
	}
	if x.Mode = req.Mode; x.Mode == 0 {
		x.Mode = 0o644
	}
	x.MTime = s.cfg.Clock().UnixNano()
	return func(e *manifest.Editor) error {
		old, err := e.Get(req.Path)
		if err == nil && old.Type == manifest.Dir {
			return fault.New(fault.Invalid, "%q is a directory; remove it first, or put the file into it", req.Path)
		}
		if err == nil && manifest.Same(old, x) {
			return nil
		}
		return pathFault(req.Path, e.Set(req.Path, x))
	}, nil
}

// interruptible ends reading when ctx does.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
