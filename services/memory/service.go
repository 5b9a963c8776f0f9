package memory

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Store keeps the items. Open makes one.
type Store = store.Store

// Config of a Service.
type Config struct {
	Store  Store // required; the service does not close it
	Limits Limits
	Now    func() time.Time // time.Now if nil
	NewID  func() string    // schemas.NewID if nil
}

// Limits of what is kept. Zero is the default.
type Limits struct {
	Items int // of a workspace, superseded ones included; 1,000,000 if 0
	Text  int // bytes of one item's text; memory.MaxText if 0, and never more
}

// Service has one method for each operation. It is safe for concurrent use.
type Service struct {
	store  Store
	limits Limits
	clock  func() time.Time
	newID  func() string
}

// New makes a Service.
func New(c Config) (*Service, error) {
	if c.Store == nil {
		return nil, errors.New("memory: Config.Store is missing")
	}
	s := &Service{store: c.Store, limits: c.Limits, clock: c.Now, newID: c.NewID}
	if s.limits.Items <= 0 {
		s.limits.Items = 1_000_000
	}
	if s.limits.Text <= 0 || s.limits.Text > memory.MaxText {
		s.limits.Text = memory.MaxText
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.newID == nil {
		s.newID = schemas.NewID
	}
	return s, nil
}

// now is the time as items have it: UTC, in whole microseconds.
func (s *Service) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// id gives a new item its id: the same one again for the same submission key of the same caller.
func (s *Service) id(by mesh.Caller, submissionKey string) (string, error) {
	if submissionKey == "" {
		return s.newID(), nil
	}
	if err := schemas.CheckKey("submission_key", submissionKey); err != nil {
		return "", fault.New(fault.Invalid, "%v", err)
	}
	return schemas.DerivedID("memory", by.Tenant, by.Workspace, by.Principal, submissionKey), nil
}

// scope is the caller's workspace.
func scope(by mesh.Caller) (store.Scope, error) {
	if by.Workspace == schemas.NoWorkspace {
		return store.Scope{}, fault.New(fault.Invalid, "memory belongs to a workspace: name one in the subject in place of %q", schemas.NoWorkspace)
	}
	return checkScope(by.Tenant, by.Workspace)
}

func checkScope(tenant, workspace string) (store.Scope, error) {
	err := schemas.CheckName("tenant", tenant)
	if err == nil {
		err = schemas.CheckName("workspace", workspace)
	}
	if err != nil {
		return store.Scope{}, fault.New(fault.Invalid, "%v", err)
	}
	return store.Scope{Tenant: tenant, Workspace: workspace}, nil
}

// failure gives an error of the store its code and sentence. what names the item for the reader.
func (s *Service) failure(err error, what string) error {
	var coded *fault.Error
	var taken *store.KeyTaken
	var mismatch *store.VersionMismatch
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.Is(err, store.ErrNotFound):
		return fault.New(fault.NotFound, "this workspace's memory has no %s", what)
	case errors.Is(err, store.ErrForgotten):
		return fault.New(fault.NotFound, "%s was forgotten", what)
	case errors.Is(err, store.ErrFull):
		return fault.New(fault.Exhausted, "this workspace's memory is full (%d items, superseded ones included): forget some first", s.limits.Items)
	case errors.As(err, &taken):
		return fault.New(fault.Conflict, "%s has a valid item already (%s, version %d): supersede it", what, taken.ID, taken.Version)
	case errors.As(err, &mismatch) && mismatch.Actual == 0:
		return fault.New(fault.Conflict, "expected version %d of %s, but it has no valid item", mismatch.Expected, what)
	case errors.As(err, &mismatch):
		return fault.New(fault.Conflict, "expected version %d of %s, found version %d: get it and decide anew", mismatch.Expected, what, mismatch.Actual)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return fault.Wrap(err, fault.Internal, "the memory store failed; the service's log has the cause")
}
