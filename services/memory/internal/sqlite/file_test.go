package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func item(text string) memory.Item {
	return memory.Item{ID: schemas.NewID(), Kind: memory.Semantic, Text: text, CreatedAt: when, ValidFrom: when}
}

// database opens a workspace's file beside the store.
func database(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func checkIntegrity(t *testing.T, dir string, items int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "acme", "demo.db"))
	require.NoError(t, err)
	defer db.Close()
	var ok string
	require.NoError(t, db.QueryRow(`PRAGMA integrity_check`).Scan(&ok))
	require.Equal(t, "ok", ok)
	_, err = db.Exec(`INSERT INTO words (words) VALUES ('integrity-check')`)
	require.NoError(t, err)
	var stray int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM tags WHERE seq NOT IN (SELECT seq FROM items)`).Scan(&stray))
	require.Zero(t, stray)
	for _, q := range []string{`SELECT count(*) FROM items`, `SELECT count(*) FROM bodies`, `SELECT items FROM totals`, `SELECT count(*) FROM words_docsize`} {
		var n int
		require.NoError(t, db.QueryRow(q).Scan(&n))
		require.Equal(t, items, n, q)
	}
}

// What is forgotten is in no file any more: not its text, tags, key or data, and none of its words in the index.
func TestForgottenIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	secret := item("the passphrase is xylophonezebra9")
	secret.Key, secret.Tags, secret.Data = "keyquixotic", []string{"tagjubilant"}, []byte(`{"d":"datavortex"}`)
	for i := range 50 {
		_, err = s.Add(t.Context(), sc, item(fmt.Sprintf("some other text %d", i)), 1000)
		require.NoError(t, err)
	}
	_, err = s.Add(t.Context(), sc, secret, 1000)
	require.NoError(t, err)
	traces := func() (found []string) {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			for _, word := range []string{"xylophonezebra9", "keyquixotic", "tagjubilant", "datavortex", "lophonezebra", "quixot", "jubil"} {
				if bytes.Contains(raw, []byte(word)) {
					found = append(found, filepath.Base(path)+": "+word)
				}
			}
			return err
		}))
		return found
	}
	require.NotEmpty(t, traces())
	n, err := s.Forget(t.Context(), sc, store.Filter{ID: secret.ID, AllVersions: true}, store.Mark{By: "ann", At: when}, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, traces())
}

func TestNewerSchemaIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	_, err = s.Add(t.Context(), sc, item("x"), 10)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, "acme", "demo.db")
	_, err = database(t, path).Exec(`INSERT INTO migrations VALUES (99, '')`)
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	s, err = sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	for range 2 {
		_, err = s.Add(t.Context(), sc, item("y"), 10)
		require.ErrorContains(t, err, "has schema version 99, and this release knows versions up to 1")
		require.True(t, fault.Is(err, fault.Unavailable))
	}
	require.NoError(t, s.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "acme"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme", "demo.db"), bytes.Repeat([]byte("no database "), 1000), 0o600))
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Add(t.Context(), store.Scope{Tenant: "acme", Workspace: "demo"}, item("x"), 10)
	code, sentence := fault.Public(err)
	require.Equal(t, fault.Internal, code)
	require.Equal(t, "the workspace's memory is damaged; tell the operator", sentence)
	_, err = s.Add(t.Context(), store.Scope{Tenant: "acme", Workspace: "other"}, item("x"), 10)
	require.NoError(t, err, "the others are not touched by it")
}

// Reading what is not there makes no files.
func TestReadingMakesNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.List(t.Context(), store.Scope{Tenant: "acme", Workspace: "demo"}, store.Filter{}, store.Position{}, 10)
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// A log that a killed process left beside a deleted database does not come to life in its successor.
func TestStrayLogIsDropped(t *testing.T) {
	dir := t.TempDir()
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	path := filepath.Join(dir, "acme", "demo.db")
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	_, err = s.Add(t.Context(), sc, item("of the old life"), 10)
	require.NoError(t, err)
	log, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.NotEmpty(t, log)
	require.NoError(t, s.DeleteWorkspace(t.Context(), sc))
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(path+"-wal", log, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".deleted-halfway"), 0o700))

	s, err = sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Add(t.Context(), sc, item("of the new life"), 10)
	require.NoError(t, err)
	items, err := s.List(t.Context(), sc, store.Filter{AllVersions: true}, store.Position{}, 10)
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.NoDirExists(t, filepath.Join(dir, ".deleted-halfway"))
}

// Many workspaces at once, few open files, and workspaces and tenants deleted amid it.
func TestManyWorkspacesFewFiles(t *testing.T) {
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{MaxOpen: 3})
	require.NoError(t, err)
	defer s.Close()
	scope := func(g, i int) store.Scope {
		return store.Scope{Tenant: fmt.Sprint("t", g%2), Workspace: fmt.Sprint("w", i%7)}
	}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for g := range 6 {
		wg.Go(func() {
			for i := range 25 {
				if _, err := s.Add(t.Context(), scope(g, i), item("x"), 1000); err != nil {
					errs <- err
				}
				if _, err := s.List(t.Context(), scope(g, i+3), store.Filter{}, store.Position{}, 10); err != nil {
					errs <- err
				}
				if g == 5 && i%5 == 0 {
					errs <- s.DeleteWorkspace(t.Context(), scope(g, i))
				}
				if g == 4 && i%10 == 0 {
					errs <- s.DeleteTenant(t.Context(), "t0")
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.Less(t, len(files), 80)
}

func TestClosed(t *testing.T) {
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.Add(t.Context(), store.Scope{Tenant: "acme", Workspace: "demo"}, item("x"), 10)
	require.True(t, fault.Is(err, fault.Unavailable), err)
}
