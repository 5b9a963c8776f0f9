// Package store is the contract between the memory service and what keeps its items: the interface,
// its values and its errors. Package storetest holds every adapter to it.
//
// A store keeps what it is given; limits, defaults and meaning are the service's. Each method acts
// within one workspace, and no method can reach beyond it. A method that returned nil has its
// effect on disk; one that failed, or was killed, had it whole or not at all, except that Forget may
// have deleted some of the items.
package store

import (
	"context"
	"time"

	"github.com/weftmesh/weft/schemas/memory"
)

// Scope names the workspace that a call is about. Both are DNS labels.
type Scope struct {
	Tenant    string
	Workspace string
}

// Store keeps memory items. It is safe for concurrent use.
type Store interface {
	// Add stores item, with Version set to one above the highest of its key, else 1. Errors:
	// *Exists, ErrForgotten, *KeyTaken, ErrFull when the workspace holds maxItems or more.
	Add(ctx context.Context, sc Scope, item memory.Item, maxItems int) (memory.Item, error)

	// Supersede puts the item that s.Build makes in the place of the valid one that s names. Build gets
	// a copy of that one, nil where there is none and s.Upsert is set; it may be called more than
	// once. Of several at the same time each supersedes the one before it, none is lost. Errors:
	// *Exists, ErrForgotten, ErrNotFound, *VersionMismatch, ErrFull, and what Build returns.
	Supersede(ctx context.Context, sc Scope, s Supersede) (memory.Item, error)

	// Get gives the item with this id, valid or not. Errors: ErrNotFound, ErrForgotten.
	Get(ctx context.Context, sc Scope, id string) (memory.Item, error)

	// ByKey gives the item valid under key at asOf, or now if asOf is zero. Errors: ErrNotFound.
	ByKey(ctx context.Context, sc Scope, key string, asOf time.Time) (memory.Item, error)

	// List gives at most limit items that f picks, the newest first (by creation, then id), only
	// those after the position unless that is zero.
	List(ctx context.Context, sc Scope, f Filter, after Position, limit int) ([]memory.Item, error)

	// Search gives the hits q asks for, the best first. Ties go to the newer, then to the higher id.
	Search(ctx context.Context, sc Scope, q Query) ([]Hit, error)

	// Forget deletes at most limit items that f picks and leaves a tombstone of each. It returns how
	// many; fewer than limit means that none is left.
	Forget(ctx context.Context, sc Scope, f Filter, mark Mark, limit int) (int, error)

	// DeleteWorkspace deletes all of a workspace, DeleteTenant all of a tenant: items and tombstones.
	DeleteWorkspace(ctx context.Context, sc Scope) error
	DeleteTenant(ctx context.Context, tenant string) error

	// Close waits for calls under way and releases everything. The store is not used afterwards.
	Close() error
}

// Supersede says what is superseded and by what.
type Supersede struct {
	NewID    string // of the item that Build makes
	ID       string // of the item to supersede, or
	Key      string // the key whose valid item is superseded
	Expected *int   // version that the valid item must have, 0 for none; nil for any
	Upsert   bool   // with Key: add if there is none
	MaxItems int
	// Build makes the new item. The store sets its Version and Supersedes.
	Build func(old *memory.Item) (memory.Item, error)
}

// Filter picks items; zero fields do not restrict.
type Filter struct {
	ID            string
	Kinds         []memory.Kind
	Tags          []string
	Key           string
	KeyPrefix     string
	Principal     string
	Task          string
	Pinned        *bool
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive
	// AsOf picks the items valid then; zero those valid now. AllVersions picks regardless of validity.
	AsOf        time.Time
	AllVersions bool
}

// Position is a place in a list: that of the item with this time and id.
type Position struct {
	Created time.Time
	ID      string
}

// IsZero reports whether p is the beginning.
func (p Position) IsZero() bool { return p.ID == "" }

// Query is a search.
type Query struct {
	Terms  []string // stems, from lexical.Query; at least one
	Kinds  []memory.Kind
	Tags   []string
	AsOf   time.Time // picks the items valid then; zero those valid now
	Now    time.Time // from here the age of items is counted; never zero
	Limit  int
	Offset int
}

// Hit is an item found, with its score: higher is better.
type Hit struct {
	Item  memory.Item
	Score float64
}

// Mark says who forgets, and when.
type Mark struct {
	By string
	At time.Time
}
