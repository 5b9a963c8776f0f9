package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// columns of an item, of items AS i and bodies AS b, in the order in which scan takes them.
const columns = `i.id, i.kind, i.key, i.version, i.pinned, i.created, i.valid_from, i.valid_to,
	i.supersedes, i.superseded_by, i.principal, i.task, i.attempt, b.text, b.tags, b.data`

const selectItem = `SELECT ` + columns + ` FROM items i JOIN bodies b USING (seq) `

// querier is a transaction or a reader.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scan reads columns, and after them what more points to.
func scan(row interface{ Scan(...any) error }, workspace string, more ...any) (memory.Item, error) {
	it := memory.Item{Workspace: workspace}
	var created, from, to int64
	var tags, data string
	err := row.Scan(append([]any{
		&it.ID, &it.Kind, &it.Key, &it.Version, &it.Pinned, &created, &from, &to, &it.Supersedes, &it.SupersededBy,
		&it.Source.Principal, &it.Source.Task, &it.Source.Attempt, &it.Text, &tags, &data,
	}, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return it, store.ErrNotFound
	}
	if err != nil {
		return it, err
	}
	it.CreatedAt, it.ValidFrom = fromMicro(created), fromMicro(from)
	if to != forever {
		t := fromMicro(to)
		it.ValidTo = &t
	}
	if data != "" {
		it.Data = json.RawMessage(data)
	}
	if err := json.Unmarshal([]byte(tags), &it.Tags); err != nil {
		return it, fmt.Errorf("tags of item %s: %w", it.ID, err)
	}
	return it, nil
}

// insert writes a whole item. The caller holds the write transaction.
func insert(ctx context.Context, tx *sql.Tx, it memory.Item) error {
	to := int64(forever)
	if it.ValidTo != nil {
		to = it.ValidTo.UnixMicro()
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO items
		(id, kind, key, version, pinned, created, valid_from, valid_to, supersedes, superseded_by, principal, task, attempt)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		it.ID, it.Kind, it.Key, it.Version, it.Pinned, it.CreatedAt.UnixMicro(), it.ValidFrom.UnixMicro(), to,
		it.Supersedes, it.SupersededBy, it.Source.Principal, it.Source.Task, it.Source.Attempt)
	if err != nil {
		return err
	}
	seq, err := res.LastInsertId()
	if err != nil {
		return err
	}
	tags, err := json.Marshal(it.Tags)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO bodies VALUES (?, ?, ?, ?)`, seq, it.Text, string(tags), string(it.Data)); err != nil {
		return err
	}
	for _, tag := range it.Tags {
		if _, err := tx.ExecContext(ctx, `INSERT INTO tags VALUES (?, ?)`, tag, seq); err != nil {
			return err
		}
	}
	text, key, words := indexed(it)
	if _, err := tx.ExecContext(ctx, `INSERT INTO words (rowid, text, key, tags) VALUES (?, ?, ?, ?)`, seq, text, key, words); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE totals SET items = items + 1 WHERE one = 1`)
	return err
}

// indexed gives what the full-text index holds of an item. To take an item out of the index the very
// same must be given again, so a change here needs a migration.
func indexed(it memory.Item) (text, key, tags string) {
	terms := func(s string) string { return strings.Join(lexical.Terms(s), " ") }
	return terms(it.Text), terms(it.Key), terms(strings.Join(it.Tags, " "))
}

func fromMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }
