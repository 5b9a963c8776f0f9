package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/services/memory/internal/store"
)

// database is one workspace's file, open: one writer, some readers. The pool's lock guards the
// fields above writer.
type database struct {
	scope   store.Scope
	refs    int
	used    uint64
	closing bool
	ready   chan struct{} // closed when connect has returned
	drained chan struct{} // closed when it is closing and has no user any more
	gone    chan struct{} // closed when it is closed

	err     error // of connect; read after ready
	writer  *sql.DB
	readers *sql.DB
	group   group
	freq    frequencies
}

// pragmas of every connection. secure_delete overwrites what is deleted, because forgetting is a
// promise; FULL makes a commit wait for the disk.
var pragmas = []string{
	"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "secure_delete(ON)",
	"cache_size(-8000)", "mmap_size(268435456)",
}

// connectTimeout bounds opening and migrating a database. It does not end with the caller who happens
// to be the first, because others wait for it too.
const connectTimeout = 25 * time.Second

func (db *database) connect(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	var err error
	if db.writer, err = sql.Open("sqlite", dsn(path, "_txlock=immediate")); err != nil {
		return err
	}
	db.writer.SetMaxOpenConns(1)
	if err := migrate(ctx, db.writer, path); err != nil {
		return errors.Join(err, db.disconnect())
	}
	if db.readers, err = sql.Open("sqlite", dsn(path, "_pragma=query_only(ON)")); err != nil {
		return errors.Join(err, db.disconnect())
	}
	db.readers.SetMaxOpenConns(readersPerDB)
	db.readers.SetMaxIdleConns(readersPerDB)
	return nil
}

// disconnect closes readers first, so that the writer is last and folds the log into the file.
func (db *database) disconnect() error {
	var errs []error
	for _, c := range []*sql.DB{db.readers, db.writer} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// dsn names a file; the directory was checked for what has a meaning in a URI, labels have none of it.
func dsn(path, more string) string {
	return fmt.Sprintf("file:%s?_pragma=%s&%s", path, strings.Join(pragmas, "&_pragma="), more)
}

// frequencies remembers for a short time in how many items a term is. It is only used to choose what a
// search looks at, so it may be a little old.
type frequencies struct {
	mu   sync.Mutex
	docs map[string]int
	at   time.Time
}

const (
	frequenciesAge = 10 * time.Second
	frequenciesMax = 20_000
)

// get gives the known frequencies of terms, and the terms that are not known.
func (f *frequencies) get(terms []string) (known map[string]int, unknown []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) > frequenciesAge || len(f.docs) > frequenciesMax {
		f.docs, f.at = map[string]int{}, time.Now()
	}
	known = map[string]int{}
	for _, t := range terms {
		if n, ok := f.docs[t]; ok {
			known[t] = n
		} else {
			unknown = append(unknown, t)
		}
	}
	return known, unknown
}

func (f *frequencies) put(docs map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.docs == nil {
		return
	}
	for t, n := range docs {
		f.docs[t] = n
	}
}
