package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, sc store.Scope, id string) (item memory.Item, err error) {
	err = s.read(ctx, sc, store.ErrNotFound, func(ctx context.Context, db *database) error {
		item, err = byID(ctx, db.readers, sc, id)
		return err
	})
	return item, err
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, sc store.Scope, key string, asOf time.Time) (item memory.Item, err error) {
	err = s.read(ctx, sc, store.ErrNotFound, func(ctx context.Context, db *database) error {
		if asOf.IsZero() {
			item, err = validByKey(ctx, db.readers, sc, key)
			return err
		}
		at := asOf.UnixMicro()
		item, err = scan(db.readers.QueryRowContext(ctx,
			selectItem+`WHERE i.key = ? AND i.key <> '' AND i.valid_from <= ? AND i.valid_to > ?
				ORDER BY i.version DESC LIMIT 1`, key, at, at), sc.Workspace)
		return err
	})
	return item, err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, sc store.Scope, f store.Filter, after store.Position, limit int) (items []memory.Item, err error) {
	err = s.read(ctx, sc, nil, func(ctx context.Context, db *database) error {
		w := where(f)
		if !after.IsZero() {
			w.and(`(i.created, i.id) < (?, ?)`, after.Created.UnixMicro(), after.ID)
		}
		rows, err := db.readers.QueryContext(ctx,
			selectItem+w.clause()+` ORDER BY i.created DESC, i.id DESC LIMIT ?`, append(w.args, limit)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			it, err := scan(rows, sc.Workspace)
			if err != nil {
				return err
			}
			items = append(items, it)
		}
		return rows.Err()
	})
	return items, err
}

// byID tells an item that never was from one that was forgotten.
func byID(ctx context.Context, q querier, sc store.Scope, id string) (memory.Item, error) {
	it, err := scan(q.QueryRowContext(ctx, selectItem+`WHERE i.id = ?`, id), sc.Workspace)
	if !errors.Is(err, store.ErrNotFound) {
		return it, err
	}
	var one int
	switch e := q.QueryRowContext(ctx, `SELECT 1 FROM tombstones WHERE id = ?`, id).Scan(&one); {
	case e == nil:
		return it, store.ErrForgotten
	case errors.Is(e, sql.ErrNoRows):
		return it, store.ErrNotFound
	default:
		return it, e
	}
}

func validByKey(ctx context.Context, q querier, sc store.Scope, key string) (memory.Item, error) {
	return scan(q.QueryRowContext(ctx,
		selectItem+`WHERE i.key = ? AND i.key <> '' AND i.valid_to = 9223372036854775807`, key), sc.Workspace)
}
