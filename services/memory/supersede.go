package memory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Supersede puts a new item in the place of a valid one, which stays, closed and pointing to the new one.
// Errors: invalid; not_found, if nothing valid is there and it is no upsert; conflict, if the version is
// another than expected or the submission key was used for something else; exhausted.
//
// Of several at the same time each supersedes the one before it. Repeated with the same submission
// key it gives the item of the first time and changes nothing.
func (s *Service) Supersede(ctx context.Context, by mesh.Caller, req memory.SupersedeRequest) (memory.SupersedeReply, error) {
	sc, err := scope(by)
	if err != nil {
		return memory.SupersedeReply{}, err
	}
	if err := checkTarget(req); err != nil {
		return memory.SupersedeReply{}, err
	}
	item, err := s.newItem(by, memory.AddRequest{
		SubmissionKey: req.SubmissionKey, Kind: req.Kind, Key: req.Key, Text: req.Text, Tags: req.Tags, Data: req.Data,
		Pinned: req.Pinned != nil && *req.Pinned, ValidFrom: req.ValidFrom, Task: req.Task, Attempt: req.Attempt,
	})
	if err != nil {
		return memory.SupersedeReply{}, err
	}
	stored, err := s.store.Supersede(ctx, sc, store.Supersede{
		NewID: item.ID, ID: req.ID, Key: req.Key, Expected: req.ExpectedVersion, Upsert: req.Upsert, MaxItems: s.limits.Items,
		Build: func(old *memory.Item) (memory.Item, error) { return successor(item, old, req) },
	})
	var exists *store.Exists
	switch {
	case errors.As(err, &exists) && sameSuccessor(exists.Item, item, req):
		return memory.SupersedeReply{Item: exists.Item, Superseded: exists.Item.Supersedes, Duplicate: true}, nil
	case errors.As(err, &exists) || errors.Is(err, store.ErrForgotten) && req.SubmissionKey != "":
		return memory.SupersedeReply{}, usedKey(req.SubmissionKey, err)
	}
	what := "valid item with key " + quote(req.Key)
	if req.ID != "" {
		what = "valid item " + req.ID
	}
	return memory.SupersedeReply{Item: stored, Superseded: stored.Supersedes}, s.failure(err, what)
}

func checkTarget(req memory.SupersedeRequest) error {
	switch {
	case (req.ID == "") == (req.Key == ""):
		return invalid("name what is superseded by either id or key")
	case req.Upsert && req.Key == "":
		return invalid("upsert needs a key")
	case req.ExpectedVersion != nil && *req.ExpectedVersion < 0:
		return invalid("expected_version %d is negative", *req.ExpectedVersion)
	case req.ExpectedVersion != nil && *req.ExpectedVersion == 0 && !req.Upsert:
		return invalid("expected_version 0 means that there is none yet: it needs upsert")
	case req.ID != "":
		return checkItemID(req.ID)
	}
	return nil
}

// successor is item with what it keeps of old.
func successor(item memory.Item, old *memory.Item, req memory.SupersedeRequest) (memory.Item, error) {
	if old == nil {
		return item, nil
	}
	item.Kind, item.Key = old.Kind, old.Key
	if req.Tags == nil {
		item.Tags = old.Tags
	}
	if req.Pinned == nil {
		item.Pinned = old.Pinned
	}
	if item.ValidFrom.After(old.ValidFrom) {
		return item, nil
	}
	if req.ValidFrom != nil {
		return item, invalid("valid_from must be after %s, since when the item that is superseded is valid", old.ValidFrom.Format(time.RFC3339Nano))
	}
	// Two within one microsecond, or a clock that was set back: the order is kept all the same.
	item.ValidFrom = old.ValidFrom.Add(time.Microsecond)
	return item, nil
}

// sameSuccessor reports whether made, which has the id of item, came of the same request.
func sameSuccessor(made, item memory.Item, req memory.SupersedeRequest) bool {
	return made.Text == item.Text && string(made.Data) == string(item.Data) &&
		(req.Key == "" || made.Key == req.Key) && (req.ID == "" || made.Supersedes == req.ID) &&
		(made.Supersedes != "" || req.Upsert) &&
		(req.Tags == nil || slices.Equal(made.Tags, item.Tags)) && (req.Pinned == nil || made.Pinned == *req.Pinned)
}
