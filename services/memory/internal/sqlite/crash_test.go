package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

const crashDir = "WEFT_MEMORY_CRASH_DIR"

var crashScope = store.Scope{Tenant: "acme", Workspace: "demo"}

// crashChild is the process that TestKilled kills: it adds and supersedes from four goroutines, and says
// on stdout what was acknowledged.
func crashChild() bool {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return false
	}
	s, err := sqlite.Open(dir, sqlite.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				it, err := crashStep(s, g, i)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(it.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return true
}

func crashStep(s *sqlite.Store, g, i int) (memory.Item, error) {
	it := memory.Item{
		ID: schemas.NewID(), Workspace: crashScope.Workspace, Kind: memory.Semantic, Tags: []string{"crash"},
		Source: memory.Source{Principal: "ann"}, CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	it.ValidFrom = it.CreatedAt
	it.Text = crashText(it.ID)
	if i%2 == 0 {
		return s.Add(context.Background(), crashScope, it, 1_000_000)
	}
	key := fmt.Sprint("fact-", g)
	it.Key = key
	return s.Supersede(context.Background(), crashScope, store.Supersede{
		NewID: it.ID, Key: key, Upsert: true, MaxItems: 1_000_000,
		Build: func(old *memory.Item) (memory.Item, error) {
			if old != nil {
				it.ValidFrom = old.ValidFrom.Add(time.Microsecond)
			}
			return it, nil
		},
	})
}

// crashText is long enough to need several pages, and tells whether it is whole.
func crashText(id string) string { return strings.Repeat(id+" ", 400) + "end" }

// A process killed by SIGKILL amid its writes keeps every item it acknowledged, and no half one.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var acked []string
	for range 4 {
		acked = append(acked, killAfter(t, dir, 20+random.IntN(200))...)

		s, err := sqlite.Open(dir, sqlite.Options{})
		require.NoError(t, err)
		seen := everyItem(t, s)
		for _, id := range acked {
			it, ok := seen[id]
			require.True(t, ok, "item %s was acknowledged", id)
			require.Equal(t, crashText(id), it.Text)
		}
		for id, it := range seen {
			require.Equal(t, crashText(id), it.Text)
			if it.SupersededBy != "" {
				require.Equal(t, id, seen[it.SupersededBy].Supersedes)
				require.Equal(t, *it.ValidTo, seen[it.SupersededBy].ValidFrom)
			}
			hits, err := s.Search(t.Context(), crashScope, store.Query{Terms: lexical.Query(id), AsOf: it.ValidFrom, Now: it.ValidFrom, Limit: 2})
			require.NoError(t, err)
			require.Len(t, hits, 1, "it is in the index")
		}
		require.NoError(t, s.Close())
		checkIntegrity(t, dir, len(seen))
	}
}

// killAfter starts the child, kills it after n acknowledgements, and gives these.
func killAfter(t *testing.T, dir string, n int) []string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	var acked []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if id := lines.Text(); len(id) == schemas.IDLen { // the last line may be cut off
			acked = append(acked, id)
		}
		if len(acked) == n {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.Error(t, cmd.Wait(), "it was killed")
	require.GreaterOrEqual(t, len(acked), n)
	return acked
}

func everyItem(t *testing.T, s store.Store) map[string]memory.Item {
	seen := map[string]memory.Item{}
	var at store.Position
	for {
		items, err := s.List(t.Context(), crashScope, store.Filter{AllVersions: true}, at, 500)
		require.NoError(t, err)
		if len(items) == 0 {
			return seen
		}
		for _, it := range items {
			seen[it.ID] = it
			at = store.Position{Created: it.CreatedAt, ID: it.ID}
		}
	}
}
