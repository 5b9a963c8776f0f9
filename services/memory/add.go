package memory

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Add remembers something new. Errors: invalid; conflict, if its key has a valid item or its
// submission key was used for something else; exhausted.
//
// Repeated with the same submission key it gives the item of the first time and adds nothing.
func (s *Service) Add(ctx context.Context, by mesh.Caller, req memory.AddRequest) (memory.AddReply, error) {
	sc, err := scope(by)
	if err != nil {
		return memory.AddReply{}, err
	}
	item, err := s.newItem(by, req)
	if err != nil {
		return memory.AddReply{}, err
	}
	stored, err := s.store.Add(ctx, sc, item, s.limits.Items)
	var exists *store.Exists
	switch {
	case errors.As(err, &exists) && sameContent(exists.Item, item):
		return memory.AddReply{Item: exists.Item, Duplicate: true}, nil
	case errors.As(err, &exists) || errors.Is(err, store.ErrForgotten):
		return memory.AddReply{}, usedKey(req.SubmissionKey, err)
	}
	return memory.AddReply{Item: stored}, s.failure(err, "key "+quote(req.Key))
}

func (s *Service) newItem(by mesh.Caller, req memory.AddRequest) (memory.Item, error) {
	now := s.now()
	item := memory.Item{
		Workspace: by.Workspace, Kind: req.Kind, Key: req.Key, Text: req.Text, Pinned: req.Pinned, CreatedAt: now,
		Source: memory.Source{Principal: by.Principal, Task: req.Task, Attempt: req.Attempt},
	}
	if item.Kind == "" {
		item.Kind = memory.Semantic
	}
	errs := []error{s.checkText(item.Text), checkKinds([]memory.Kind{item.Kind}), checkSource(req.Task, req.Attempt)}
	if item.Key != "" {
		errs = append(errs, checkKey(item.Key))
	}
	var err error
	if item.Tags, err = checkTags(req.Tags); err != nil {
		errs = append(errs, err)
	}
	if item.Data, err = checkData(req.Data); err != nil {
		errs = append(errs, err)
	}
	if item.ValidFrom, err = checkValidFrom(req.ValidFrom, now); err != nil {
		errs = append(errs, err)
	}
	if item.ID, err = s.id(by, req.SubmissionKey); err != nil {
		errs = append(errs, err)
	}
	return item, first(errs)
}

// sameContent reports whether two items say the same, wherever they come from.
func sameContent(a, b memory.Item) bool {
	return a.Kind == b.Kind && a.Key == b.Key && a.Text == b.Text && slices.Equal(a.Tags, b.Tags) &&
		bytes.Equal(a.Data, b.Data) && a.Pinned == b.Pinned
}

// usedKey is the conflict of a submission key that cannot be used again.
func usedKey(key string, err error) error {
	if errors.Is(err, store.ErrForgotten) {
		return fault.New(fault.Conflict, "the item of submission key %s was forgotten: use another key to remember it again", quote(key))
	}
	return fault.New(fault.Conflict, "submission key %s was used for something else: use another key", quote(key))
}

// first gives the first error, so that a sentence names one thing to mend.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func quote(s string) string { return `"` + clip(s) + `"` }
