package store

import (
	"errors"
	"fmt"

	"github.com/weftmesh/weft/schemas/memory"
)

// Errors that a caller acts on. Whatever else a store returns is a failure of the store itself; it
// carries a fault code where the cause is known.
var (
	ErrNotFound  = errors.New("no such item")
	ErrForgotten = errors.New("the item was forgotten")
	ErrFull      = errors.New("the workspace holds as many items as it may")
)

// Exists says that the id of a new item is taken: the request was made before.
type Exists struct{ Item memory.Item }

func (e *Exists) Error() string { return fmt.Sprintf("item %s exists", e.Item.ID) }

// KeyTaken says that the key of a new item has a valid one.
type KeyTaken struct {
	ID      string
	Version int
}

func (e *KeyTaken) Error() string {
	return fmt.Sprintf("the key belongs to item %s, version %d", e.ID, e.Version)
}

// VersionMismatch says that the valid item has another version than expected; 0 is none.
type VersionMismatch struct{ Expected, Actual int }

func (e *VersionMismatch) Error() string {
	return fmt.Sprintf("expected version %d, found %d", e.Expected, e.Actual)
}
