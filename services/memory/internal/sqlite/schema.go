package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/weftmesh/weft/pkg/fault"
)

// migrations lead from an empty file to the present schema, one version each. A released one is never
// changed; a change of package lexical or of indexed is a migration that rebuilds words.
//
// items is narrow, because a search reads a row of it for each candidate; what only a result needs is in
// bodies. words holds an index without a copy of the text, of terms made by package lexical; it takes any
// character a term can have for part of a word. Its secure-delete keeps no trace of deleted terms. There are no
// foreign keys: SQLite flushes the full-text index, amid a transaction too, before each statement that may
// have to be undone halfway.
var migrations = []string{`
CREATE TABLE items (
	seq           INTEGER PRIMARY KEY,
	id            TEXT    NOT NULL UNIQUE,
	kind          TEXT    NOT NULL,
	key           TEXT    NOT NULL,  -- '' is none
	version       INTEGER NOT NULL,
	pinned        INTEGER NOT NULL,
	created       INTEGER NOT NULL,  -- times are microseconds since 1970
	valid_from    INTEGER NOT NULL,
	valid_to      INTEGER NOT NULL,  -- the highest integer is for ever
	supersedes    TEXT    NOT NULL,
	superseded_by TEXT    NOT NULL,
	principal     TEXT    NOT NULL,
	task          TEXT    NOT NULL,
	attempt       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX items_valid_key ON items (key) WHERE key <> '' AND valid_to = 9223372036854775807;
CREATE UNIQUE INDEX items_key ON items (key, version) WHERE key <> '';
CREATE INDEX items_created ON items (created, id);
CREATE INDEX items_pinned ON items (created, id) WHERE pinned = 1;

CREATE TABLE bodies (
	seq  INTEGER PRIMARY KEY,
	text TEXT NOT NULL,
	tags TEXT NOT NULL,  -- a JSON array
	data TEXT NOT NULL   -- a JSON object, '' is none
) STRICT;

CREATE TABLE tags (
	tag TEXT    NOT NULL,
	seq INTEGER NOT NULL,
	PRIMARY KEY (tag, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_seq ON tags (seq);

CREATE TABLE tombstones (
	id           TEXT    PRIMARY KEY,
	kind         TEXT    NOT NULL,
	created      INTEGER NOT NULL,
	forgotten_at INTEGER NOT NULL,
	forgotten_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (one INTEGER PRIMARY KEY, items INTEGER NOT NULL) STRICT;
INSERT INTO totals VALUES (1, 0);

CREATE VIRTUAL TABLE words USING fts5 (
	text, key, tags, content = '',
	tokenize = "unicode61 remove_diacritics 0 categories 'L* N* M* Co Cn'"
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
`}

// migrate brings a database to the present schema, each step in a transaction. A newer one is left alone.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var present int
	_, err = tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, at TEXT NOT NULL) STRICT`)
	if err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM migrations`).Scan(&present); err != nil {
		return err
	}
	if present > len(migrations) {
		return fault.New(fault.Unavailable,
			"the memory of this workspace has schema version %d, and this release knows versions up to %d: run the newer release; nothing was changed",
			present, len(migrations))
	}
	for v := present + 1; v <= len(migrations); v++ {
		if _, err := tx.ExecContext(ctx, migrations[v-1]); err != nil {
			return fmt.Errorf("migrate %s to version %d: %w", path, v, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO migrations VALUES (?, datetime('now'))`, v); err != nil {
			return err
		}
	}
	return tx.Commit()
}
