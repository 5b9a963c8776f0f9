package sqlite

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/memory/internal/store"

	sqlite3 "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// classify gives a failure of SQLite the code and the sentence that the caller can act on.
// Errors of the contract, and those that have a code, pass.
func classify(ctx context.Context, sc store.Scope, err error) error {
	var coded *fault.Error
	var failed *sqlite3.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errClosed):
		return fault.Wrap(err, fault.Unavailable, "the memory service is stopping; try again")
	case errors.Is(err, syscall.ENOSPC):
		return fault.Wrap(err, fault.Exhausted, "the disk of the memory service is full")
	case !errors.As(err, &failed):
		return err
	}
	switch failed.Code() & 0xff {
	case codes.SQLITE_FULL:
		return fault.Wrap(err, fault.Exhausted, "the disk of the memory service is full")
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fault.Wrap(err, fault.Unavailable, "the workspace's memory is busy; try again")
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return fault.Wrap(fmt.Errorf("database of %s/%s: %w", sc.Tenant, sc.Workspace, err), fault.Internal,
			"the workspace's memory is damaged; tell the operator")
	}
	return fmt.Errorf("database of %s/%s: %w", sc.Tenant, sc.Workspace, err)
}
