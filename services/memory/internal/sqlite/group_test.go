package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Writes at the same time share transactions; each still is whole or not at all for itself, whatever the
// others do.
func TestWritesAtOnce(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(t, err)
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	errNot := errors.New("not so")
	for _, key := range []string{"one", "two"} {
		it := item(key)
		it.Key = key
		_, err := s.Add(t.Context(), sc, it, 1000)
		require.NoError(t, err)
	}
	const n = 300
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			it := item(fmt.Sprint("note ", i))
			supersede := func(build func(*memory.Item) (memory.Item, error)) error {
				_, err := s.Supersede(t.Context(), sc, store.Supersede{NewID: it.ID, Key: "one", MaxItems: 1000, Build: build})
				return err
			}
			switch i % 4 {
			case 0:
				_, errs[i] = s.Add(t.Context(), sc, it, 1000)
			case 1:
				errs[i] = supersede(func(*memory.Item) (memory.Item, error) { return it, errNot })
			case 2:
				errs[i] = supersede(func(*memory.Item) (memory.Item, error) { panic("a defect") })
			case 3: // fails after it has closed the old item, because the new one's key is taken
				it.Key = "two"
				errs[i] = supersede(func(*memory.Item) (memory.Item, error) { return it, nil })
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		switch i % 4 {
		case 0:
			require.NoError(t, err)
		case 1:
			require.ErrorIs(t, err, errNot)
		case 2:
			require.ErrorContains(t, err, "panic in a write")
		case 3:
			require.ErrorContains(t, err, "UNIQUE")
		}
	}
	items, err := s.List(t.Context(), sc, store.Filter{}, store.Position{}, 1000)
	require.NoError(t, err)
	require.Len(t, items, n/4+2, "all are valid")
	require.NoError(t, s.Close())
	checkIntegrity(t, dir, n/4+2)
}

// A caller who goes away while waiting leaves no item behind; one whose write has begun gets its outcome.
func TestWriterGoesAway(t *testing.T) {
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	require.NoError(t, err)
	defer s.Close()
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	begun, release := make(chan struct{}), make(chan struct{})
	slow := make(chan error, 1)
	leaving, leave := context.WithCancel(t.Context())
	go func() {
		it := item("slow")
		_, err := s.Supersede(leaving, sc, store.Supersede{
			NewID: it.ID, Key: "k", Upsert: true, MaxItems: 10,
			Build: func(*memory.Item) (memory.Item, error) {
				close(begun)
				<-release
				it.Key = "k"
				return it, nil
			},
		})
		slow <- err
	}()
	<-begun
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = s.Add(short, sc, item("impatient"), 10)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	leave()
	close(release)
	require.NoError(t, <-slow)
	_, err = s.Add(t.Context(), sc, item("next"), 10)
	require.NoError(t, err)
	items, err := s.List(t.Context(), sc, store.Filter{}, store.Position{}, 10)
	require.NoError(t, err)
	require.Len(t, items, 2)
}
