package mongo_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/mongo"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

const (
	crashURL  = "WEFT_MEMORY_CRASH_URL"
	crashWhat = "WEFT_MEMORY_CRASH_WHAT"
)

var (
	scope = store.Scope{Tenant: "acme", Workspace: "demo"}
	when  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// The ids of the items that the child makes.
	first  = schemas.DerivedID("first")
	second = schemas.DerivedID("second")
)

// crashChild is the process that dies at a failpoint: it does one write.
func crashChild() bool {
	url := os.Getenv(crashURL)
	if url == "" {
		return false
	}
	s, err := mongo.Open(context.Background(), url)
	if err == nil {
		switch os.Getenv(crashWhat) {
		case "supersede":
			_, err = s.Supersede(context.Background(), scope, replacement(second, "new"))
		case "forget":
			_, err = s.Forget(context.Background(), scope, everything, store.Mark{By: "ann", At: when}, 10)
		}
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
	return true
}

var everything = store.Filter{AllVersions: true}

func item(id, text string) memory.Item {
	return memory.Item{
		ID: id, Workspace: scope.Workspace, Kind: memory.Semantic, Key: "fact", Text: text, CreatedAt: when, ValidFrom: when,
		Source: memory.Source{Principal: "ann"},
	}
}

func replacement(id, text string) store.Supersede {
	return store.Supersede{NewID: id, Key: "fact", MaxItems: 100, Build: func(old *memory.Item) (memory.Item, error) {
		it := item(id, text)
		it.ValidFrom = old.ValidFrom.Add(time.Second)
		it.CreatedAt = it.ValidFrom
		return it, nil
	}}
}

// killedAt runs the child until it dies at point.
func killedAt(t *testing.T, url, what, point string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashURL+"="+url, crashWhat+"="+what, failpoint.Env+"="+point)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%s", out)
}

// Wherever a supersede is killed, exactly one item of the key is valid for every reader, and the same
// request, made again, ends in the same state.
func TestSupersedeKilled(t *testing.T) {
	reads := map[string]func(*testing.T, store.Store) []string{
		"list": func(t *testing.T, s store.Store) []string {
			items, err := s.List(t.Context(), scope, store.Filter{}, store.Position{}, 10)
			require.NoError(t, err)
			return texts(items)
		},
		"by key": func(t *testing.T, s store.Store) []string {
			it, err := s.ByKey(t.Context(), scope, "fact", time.Time{})
			require.NoError(t, err)
			return texts([]memory.Item{it})
		},
		"as of": func(t *testing.T, s store.Store) []string {
			items, err := s.List(t.Context(), scope, store.Filter{AsOf: when.Add(time.Hour)}, store.Position{}, 10)
			require.NoError(t, err)
			return texts(items)
		},
		"search": func(t *testing.T, s store.Store) []string {
			hits, err := s.Search(t.Context(), scope, store.Query{Terms: []string{"fact"}, Now: when, Limit: 10})
			require.NoError(t, err)
			out := []string{}
			for _, h := range hits {
				out = append(out, h.Item.Text)
			}
			return out
		},
	}
	for _, c := range []struct{ point, want string }{
		{"memory.supersede.marked", "old"}, {"memory.supersede.inserted", "new"}, {"memory.supersede.closed", "new"},
	} {
		for name, read := range reads {
			t.Run(c.point+" "+name, func(t *testing.T) {
				url := fresh(t)
				s := connect(t, url)
				defer s.Close()
				_, err := s.Add(t.Context(), scope, item(first, "old"), 100)
				require.NoError(t, err)
				killedAt(t, url, "supersede", c.point)

				require.Equal(t, []string{c.want}, read(t, s), "the first reader sees it whole or not at all")
				_, err = s.Supersede(t.Context(), scope, replacement(second, "new"))
				var exists *store.Exists
				if c.want == "old" {
					require.NoError(t, err)
				} else {
					require.ErrorAs(t, err, &exists)
				}
				require.Equal(t, []string{"new"}, read(t, s))
				old, err := s.Get(t.Context(), scope, first)
				require.NoError(t, err)
				require.Equal(t, second, old.SupersededBy)
				require.Equal(t, when.Add(time.Second), *old.ValidTo)
			})
		}
	}
}

// The next write finishes it too, without a read before.
func TestSupersedeAfterKilled(t *testing.T) {
	url := fresh(t)
	s := connect(t, url)
	defer s.Close()
	_, err := s.Add(t.Context(), scope, item(first, "old"), 100)
	require.NoError(t, err)
	killedAt(t, url, "supersede", "memory.supersede.inserted")
	it, err := s.Supersede(t.Context(), scope, replacement(schemas.NewID(), "newer"))
	require.NoError(t, err)
	require.Equal(t, 3, it.Version)
	items, err := s.List(t.Context(), scope, everything, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"newer", "new", "old"}, texts(items))
	require.Equal(t, second, items[2].SupersededBy)
	require.Equal(t, it.ID, items[1].SupersededBy)
}

// A mark whose writer died before the insertion is given up after a while, and does no harm until then.
func TestStaleMark(t *testing.T) {
	url := fresh(t)
	s := connect(t, url)
	defer s.Close()
	_, err := s.Add(t.Context(), scope, item(first, "old"), 100)
	require.NoError(t, err)
	killedAt(t, url, "supersede", "memory.supersede.marked")
	require.Equal(t, 1, s.Marks(t))
	_, err = s.Get(t.Context(), scope, first)
	require.NoError(t, err)
	require.Equal(t, 1, s.Marks(t), "its writer may be at work")
	s.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	_, err = s.Get(t.Context(), scope, first)
	require.NoError(t, err)
	require.Zero(t, s.Marks(t))
}

// A forget that was killed leaves items or not, and none that an add could bring back; repeated, it is done.
func TestForgetKilled(t *testing.T) {
	url := fresh(t)
	s := connect(t, url)
	defer s.Close()
	_, err := s.Add(t.Context(), scope, item(first, "old"), 100)
	require.NoError(t, err)
	killedAt(t, url, "forget", "memory.forget.marked")
	_, err = s.Get(t.Context(), scope, first)
	require.ErrorIs(t, err, store.ErrForgotten)
	n, err := s.Forget(t.Context(), scope, everything, store.Mark{By: "ann", At: when}, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.Add(t.Context(), scope, item(first, "old"), 100)
	require.ErrorIs(t, err, store.ErrForgotten)
}

func texts(items []memory.Item) []string {
	out := []string{}
	for _, it := range items {
		out = append(out, it.Text)
	}
	return out
}
