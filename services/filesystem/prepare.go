package filesystem

import (
	"context"
	"errors"
	"sync"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// States of an overlay's record.
const (
	overlayOpen      = "open"
	overlayMerged    = "merged"
	overlayDiscarded = "discarded"
)

// Modes in which a sandbox sees the files.
const (
	modePrivate  = "private"
	modeReadOnly = "readonly"
)

var afterFence = failpoint.Register("filesystem.prepare.after-fence")

// owner identifies whose overlay an operation is about.
type owner struct {
	tenant, workspace, id string
	attempt               int
	sandbox               string
	node                  string // who asks
}

// check validates what a node sent, and gives the workspace.
func (s *Service) check(o owner) (*space, error) {
	if err := errors.Join(checkID("owner", o.id), checkID("sandbox", o.sandbox)); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	if o.attempt < 0 {
		return nil, fault.New(fault.Invalid, "attempt %d must not be negative", o.attempt)
	}
	return s.space(o.tenant, o.workspace)
}

// Prepare gives a sandbox its view of the head. It raises the fence: what an earlier attempt of the same owner
// merges or prepares from now on is a conflict. Only the node that holds the attempt gets it. Asked again for the same attempt and sandbox it gives the same view, with what the
// sandbox has written, as long as the node was not restarted.
func (s *Service) Prepare(ctx context.Context, by mesh.Caller, req wire.Prepare) (wire.Prepared, error) {
	o := owner{req.Tenant, req.Workspace, req.Owner, req.Attempt, req.Sandbox, by.Principal}
	sp, err := s.check(o)
	if err != nil {
		return wire.Prepared{}, err
	}
	if req.Mode == "" {
		req.Mode = modePrivate
	}
	if req.Mode != modePrivate && req.Mode != modeReadOnly {
		return wire.Prepared{}, fault.New(fault.Invalid, "mode %q must be private or readonly", req.Mode)
	}
	if req.From != "" {
		if err := checkID("from", req.From); err != nil {
			return wire.Prepared{}, fault.New(fault.Invalid, "%v", err)
		}
	}
	if req.DiskBytes < 0 {
		return wire.Prepared{}, fault.New(fault.Invalid, "disk_bytes %d must not be negative", req.DiskBytes)
	}
	def(&req.DiskBytes, s.cfg.OverlayBytes)
	err = together(
		func() error { _, err := s.quota(ctx, sp); return err },
		func() error { return s.current(ctx, o) },
	)
	if err != nil {
		return wire.Prepared{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return wire.Prepared{}, err
	}
	defer sp.release()
	from, err := s.fence(ctx, sp, req)
	if err != nil {
		return wire.Prepared{}, err
	}
	failpoint.Hit(afterFence)
	made, err := s.trees.Prepare(ctx, sp.trees(), tree.Overlay{
		Node: by.Principal, Tenant: req.Tenant, Workspace: req.Workspace, Owner: req.Owner, Attempt: req.Attempt, Sandbox: req.Sandbox,
		Base: from.snapshot, ReadOnly: req.Mode == modeReadOnly, DiskBytes: req.DiskBytes, IDBase: req.IDBase, From: req.From, At: s.cfg.Clock().UTC(),
	}, from.root)
	if err != nil {
		return wire.Prepared{}, storeFault(err)
	}
	return s.prepared(made, from.files), nil
}

// together runs what waits for others at the same time, and gives the error of the first one that has one.
func together(do ...func() error) error {
	errs := make([]error, len(do))
	var wg sync.WaitGroup
	for i, f := range do {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) prepared(o tree.Overlay, files int) wire.Prepared {
	p := wire.Prepared{UID: tree.Owner, GID: tree.Owner, Base: o.Base, Files: files}
	if o.IDBase > 0 {
		p.Path, p.UID, p.GID = s.trees.Path(o.Sandbox), o.IDBase+tree.Payload, o.IDBase+tree.Payload
		return p
	}
	lower, upper, work := s.trees.Parts(o)
	p.Layers = &wire.Layers{Lower: lower, Upper: upper, Work: work}
	return p
}

// version is what an overlay starts from: a snapshot, or nothing.
type version struct {
	snapshot string
	root     chunks.Hash
	files    int
}

// fence writes the overlay's record and gives what it starts from. An overlay of an earlier attempt is removed.
func (s *Service) fence(ctx context.Context, sp *space, req wire.Prepare) (version, error) {
	var (
		r      records.Record[wire.Overlay]
		from   version
		noFrom error // counts for a new overlay only
	)
	err := together(
		func() (err error) {
			r, err = s.cfg.Records.Overlays.Get(ctx, sp.key(req.Owner))
			if fault.Is(err, fault.NotFound) {
				r, err = records.Record[wire.Overlay]{Value: wire.Overlay{Attempt: -1}}, nil
			}
			return err
		},
		func() error { from, noFrom = s.startOf(ctx, sp, req); return nil },
	)
	have := r.Value
	switch {
	case err != nil:
		return version{}, err
	case have.Attempt > req.Attempt:
		return version{}, fault.New(fault.Conflict, "attempt %d was overtaken by attempt %d; end it", req.Attempt, have.Attempt)
	case have.Attempt == req.Attempt && have.Sandbox != req.Sandbox:
		return version{}, fault.New(fault.Conflict, "attempt %d has its files in sandbox %s already", req.Attempt, have.Sandbox)
	case have.Attempt == req.Attempt && have.State != overlayOpen:
		return version{}, fault.New(fault.Conflict, "the files of attempt %d were %s already", req.Attempt, have.State)
	case have.Attempt == req.Attempt:
		return s.versionOf(ctx, sp, have.Base)
	case noFrom != nil:
		return version{}, noFrom
	}
	_, err = s.cfg.Records.Overlays.Write(ctx, sp.key(req.Owner), r.Sequence, eventOpened, wire.Overlay{
		Owner: req.Owner, Attempt: req.Attempt, Sandbox: req.Sandbox, Base: from.snapshot, State: overlayOpen, At: s.cfg.Clock().UTC(),
	})
	if err == nil && have.Sandbox != "" {
		err = s.trees.Remove(have.Sandbox)
	}
	return from, err
}

// startOf gives what an overlay starts from: the head, or what the overlay that it copies began with.
func (s *Service) startOf(ctx context.Context, sp *space, req wire.Prepare) (version, error) {
	if req.From == "" {
		st, err := s.head(ctx, sp)
		if err == nil {
			err = s.settle(ctx, sp, st)
		}
		return version{st.Value.Snapshot, st.root, st.Value.Files}, err
	}
	r, err := s.cfg.Records.Overlays.Get(ctx, sp.key(req.From))
	if err == nil && (r.Value.State != overlayOpen || r.Value.Sandbox != req.From) {
		err = fault.New(fault.Conflict, "the files of sandbox %s were %s already", req.From, r.Value.State)
	}
	if err != nil {
		return version{}, err
	}
	return s.versionOf(ctx, sp, r.Value.Base)
}

// versionOf gives what a snapshot holds; without one, nothing.
func (s *Service) versionOf(ctx context.Context, sp *space, snapshot string) (version, error) {
	if snapshot == "" {
		return version{root: manifest.Empty}, nil
	}
	r, err := s.snapshot(ctx, sp, snapshot)
	if err != nil {
		return version{}, err
	}
	root, err := chunks.ParseHash(r.Value.Manifest)
	return version{snapshot, root, r.Value.Files}, err
}
