// Package sqlite keeps memory items in SQLite, one database file per workspace:
// <dir>/<tenant>/<workspace>.db. So no query can reach another workspace, the statistics behind a
// search are the workspace's own, workspaces do not wait for one another's writes, and deleting one is
// deleting a file. Every write is on disk before it is acknowledged.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/memory/internal/store"

	_ "modernc.org/sqlite" // registers the driver
)

const (
	// defaultMaxOpen is how many databases are open at once. Each takes up to 10 file descriptors.
	defaultMaxOpen = 64
	readersPerDB   = 4
	// opTimeout ends a call whose caller set no earlier deadline.
	opTimeout = 30 * time.Second
	// forever is valid_to of what is valid.
	forever = math.MaxInt64
)

// Options of a Store. The zero value serves.
type Options struct {
	MaxOpen int // databases open at once, 64 if 0
}

// Store keeps items under a directory. See package store for the contract.
type Store struct {
	dir  string
	pool *pool
}

// Open prepares dir, which is created if absent (0700). Databases are opened when they are first used.
func Open(dir string, o Options) (*Store, error) {
	if o.MaxOpen <= 0 {
		o.MaxOpen = defaultMaxOpen
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("memory directory: %w", err)
	}
	if strings.ContainsAny(dir, "?#%") {
		return nil, fmt.Errorf("memory directory %q: its path must have no ?, # or %%", dir)
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	s.pool = newPool(o.MaxOpen, s.path)
	return s, s.sweep()
}

// Close waits for the calls under way and closes every database.
func (s *Store) Close() error { return s.pool.close() }

func (s *Store) path(sc store.Scope) string {
	return filepath.Join(s.dir, sc.Tenant, sc.Workspace+".db")
}

// read runs f on a reader of sc's database. It returns absent, without calling f, if there is none.
func (s *Store) read(ctx context.Context, sc store.Scope, absent error, f func(context.Context, *database) error) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	db, err := s.pool.acquire(ctx, sc, false)
	if err != nil {
		return classify(ctx, sc, err)
	}
	if db == nil {
		return absent
	}
	defer s.pool.release(db)
	return classify(ctx, sc, f(ctx, db))
}

// write runs f in a write transaction of sc's database, see group.
func (s *Store) write(ctx context.Context, sc store.Scope, f func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	db, err := s.pool.acquire(ctx, sc, true)
	if err != nil {
		return classify(ctx, sc, err)
	}
	defer s.pool.release(db)
	return classify(ctx, sc, db.group.do(ctx, db.writer, f))
}

// makeDir makes a directory whose name survives a power failure.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("memory directory: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
