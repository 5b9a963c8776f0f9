package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Add implements store.Store: one transaction.
func (s *Store) Add(ctx context.Context, sc store.Scope, item memory.Item, maxItems int) (memory.Item, error) {
	err := s.write(ctx, sc, func(ctx context.Context, tx *sql.Tx) error {
		if err := checkNew(ctx, tx, sc, item.ID, maxItems); err != nil {
			return err
		}
		item.Version = 1
		if item.Key != "" {
			switch old, err := validByKey(ctx, tx, sc, item.Key); {
			case err == nil:
				return &store.KeyTaken{ID: old.ID, Version: old.Version}
			case !errors.Is(err, store.ErrNotFound):
				return err
			}
			if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) + 1 FROM items WHERE key = ? AND key <> ''`,
				item.Key).Scan(&item.Version); err != nil {
				return err
			}
		}
		return insert(ctx, tx, item)
	})
	return item, err
}

// Supersede implements store.Store: one transaction.
func (s *Store) Supersede(ctx context.Context, sc store.Scope, r store.Supersede) (memory.Item, error) {
	var item memory.Item
	err := s.write(ctx, sc, func(ctx context.Context, tx *sql.Tx) error {
		if err := checkNew(ctx, tx, sc, r.NewID, r.MaxItems); err != nil {
			return err
		}
		old, err := superseded(ctx, tx, sc, r)
		if err != nil {
			return err
		}
		if item, err = r.Build(old); err != nil {
			return err
		}
		item.ID, item.Version = r.NewID, 1
		if old == nil {
			err = tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) + 1 FROM items WHERE key = ? AND key <> ''`, r.Key).Scan(&item.Version)
		} else {
			item.Version, item.Supersedes = old.Version+1, old.ID
			_, err = tx.ExecContext(ctx, `UPDATE items SET valid_to = ?, superseded_by = ? WHERE id = ?`,
				item.ValidFrom.UnixMicro(), item.ID, old.ID)
		}
		if err != nil {
			return err
		}
		return insert(ctx, tx, item)
	})
	return item, err
}

// superseded finds the valid item that r names, nil if there is none and one is to be added.
func superseded(ctx context.Context, tx *sql.Tx, sc store.Scope, r store.Supersede) (*memory.Item, error) {
	var old memory.Item
	var err error
	if r.ID != "" {
		old, err = byID(ctx, tx, sc, r.ID)
		if err == nil && old.ValidTo != nil {
			err = store.ErrNotFound
		}
	} else {
		old, err = validByKey(ctx, tx, sc, r.Key)
	}
	actual := old.Version
	missing := errors.Is(err, store.ErrNotFound)
	if missing {
		actual = 0
	}
	switch {
	case err != nil && !missing:
		return nil, err
	case r.Expected != nil && *r.Expected != actual:
		return nil, &store.VersionMismatch{Expected: *r.Expected, Actual: actual}
	case missing && r.Upsert:
		return nil, nil
	case missing:
		return nil, err
	}
	return &old, nil
}

// checkNew says whether an item may be made under id.
func checkNew(ctx context.Context, tx *sql.Tx, sc store.Scope, id string, maxItems int) error {
	switch it, err := byID(ctx, tx, sc, id); {
	case err == nil:
		return &store.Exists{Item: it}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT items FROM totals`).Scan(&n); err != nil {
		return err
	}
	if n >= maxItems {
		return store.ErrFull
	}
	return nil
}
