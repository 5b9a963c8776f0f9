package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Forget implements store.Store: one transaction. Afterwards no byte of the items is left in the file,
// and none in its log either unless a reader holds that at the moment; then the next forget, or
// closing the database, empties it.
func (s *Store) Forget(ctx context.Context, sc store.Scope, f store.Filter, mark store.Mark, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	db, err := s.pool.acquire(ctx, sc, false)
	if err != nil || db == nil {
		return 0, classify(ctx, sc, err)
	}
	defer s.pool.release(db)
	n, err := db.forget(ctx, sc, f, mark, limit)
	if err != nil || n == 0 {
		return 0, classify(ctx, sc, err)
	}
	var busy, logged, checkpointed int
	err = db.writer.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &logged, &checkpointed)
	return n, classify(ctx, sc, err)
}

func (db *database) forget(ctx context.Context, sc store.Scope, f store.Filter, mark store.Mark, limit int) (int, error) {
	tx, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	items, err := picked(ctx, tx, sc, f, limit)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	for seq, it := range items {
		text, key, tags := indexed(it)
		for _, st := range []struct {
			query string
			args  []any
		}{
			{`INSERT INTO words (words, rowid, text, key, tags) VALUES ('delete', ?, ?, ?, ?)`, []any{seq, text, key, tags}},
			{`DELETE FROM tags WHERE seq = ?`, []any{seq}},
			{`DELETE FROM bodies WHERE seq = ?`, []any{seq}},
			{`DELETE FROM items WHERE seq = ?`, []any{seq}},
			{`INSERT INTO tombstones VALUES (?, ?, ?, ?, ?)`,
				[]any{it.ID, it.Kind, it.CreatedAt.UnixMicro(), mark.At.UnixMicro(), mark.By}},
		} {
			if _, err := tx.ExecContext(ctx, st.query, st.args...); err != nil {
				return 0, err
			}
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE totals SET items = items - ? WHERE one = 1`, len(items)); err != nil {
		return 0, err
	}
	return len(items), tx.Commit()
}

// picked gives the items that f picks by their row numbers.
func picked(ctx context.Context, tx *sql.Tx, sc store.Scope, f store.Filter, limit int) (map[int64]memory.Item, error) {
	w := where(f)
	rows, err := tx.QueryContext(ctx,
		`SELECT `+columns+`, i.seq FROM items i JOIN bodies b USING (seq) `+w.clause()+` LIMIT ?`, append(w.args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	items := map[int64]memory.Item{}
	for rows.Next() {
		var seq int64
		it, err := scan(rows, sc.Workspace, &seq)
		if err != nil {
			return nil, err
		}
		items[seq] = it
	}
	return items, rows.Err()
}

// deleted is how the names begin of what is being deleted. No label begins with a dot.
const deleted = ".deleted-"

// DeleteWorkspace implements store.Store. The file is renamed first, so that a crash leaves the
// workspace or nothing of it; what it leaves under the new name, sweep removes at the next start.
func (s *Store) DeleteWorkspace(_ context.Context, sc store.Scope) error {
	gone := filepath.Join(s.dir, deleted+schemas.NewID())
	err := s.pool.remove(sc.Tenant, func(o store.Scope) bool { return o == sc }, func() error {
		if err := s.rename(s.path(sc), gone); err != nil {
			return err
		}
		// A database closed in order has no log beside it; one that was killed may have. Should it stay, by
		// a crash just here, SQLite removes it itself when it makes the file anew.
		for _, suffix := range []string{"-wal", "-shm"} {
			if err := os.Remove(s.path(sc) + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete the memory of %s/%s: %w", sc.Tenant, sc.Workspace, err)
	}
	return os.RemoveAll(gone)
}

// DeleteTenant implements store.Store, like DeleteWorkspace.
func (s *Store) DeleteTenant(_ context.Context, tenant string) error {
	gone := filepath.Join(s.dir, deleted+schemas.NewID())
	err := s.pool.remove(tenant, func(store.Scope) bool { return true }, func() error {
		return s.rename(filepath.Join(s.dir, tenant), gone)
	})
	if err != nil {
		return fmt.Errorf("delete the memory of tenant %s: %w", tenant, err)
	}
	return os.RemoveAll(gone)
}

func (s *Store) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return errors.Join(syncDir(filepath.Dir(from)), syncDir(s.dir))
}

// sweep removes what a crash left half deleted.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("memory directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), deleted) {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return fmt.Errorf("memory directory: %w", err)
			}
		}
	}
	return nil
}
