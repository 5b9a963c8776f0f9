package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ann = mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "ann"}

// epoch is when a test's clock begins.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// desk is a service on SQLite with a clock that moves a minute each time it is read.
type desk struct {
	*memory.Service
	now time.Time
}

func open(t testing.TB, limits memory.Limits) *desk {
	t.Helper()
	store, err := memory.Open(context.Background(), "sqlite:"+t.TempDir(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	d := &desk{now: epoch}
	d.Service, err = memory.New(memory.Config{Store: store, Limits: limits, Now: func() time.Time {
		d.now = d.now.Add(time.Minute)
		return d.now
	}})
	require.NoError(t, err)
	return d
}

func (d *desk) remember(t testing.TB, req wire.AddRequest) wire.Item {
	t.Helper()
	reply, err := d.Add(t.Context(), ann, req)
	require.NoError(t, err)
	return reply.Item
}

// refused checks an error's code and that its sentence, as it is sent, says what.
func refused(t *testing.T, err error, code fault.Code, what string) {
	t.Helper()
	require.Error(t, err)
	got, sentence := fault.Public(err)
	require.Equal(t, code, got, err)
	require.Contains(t, sentence, what)
}

func TestConfig(t *testing.T) {
	_, err := memory.New(memory.Config{})
	require.ErrorContains(t, err, "Store")
	for _, address := range []string{"", "sqlite:", "postgres://ann:secret@host/db", "/just/a/path", "mongodb"} {
		_, err := memory.Open(t.Context(), address, 0)
		require.ErrorContains(t, err, "sqlite:<directory>", address)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = memory.Open(t.Context(), "sqlite:/dev/null/x", 0)
	require.Error(t, err)
}

// Whose memory it is comes from the caller alone; nothing of one reaches another.
func TestCallersAreApart(t *testing.T) {
	d := open(t, memory.Limits{})
	mine := d.remember(t, wire.AddRequest{Key: "k", Text: "mine", SubmissionKey: "s"})
	for _, by := range []mesh.Caller{
		{Tenant: "acme", Workspace: "other", Principal: "ann"}, {Tenant: "evil", Workspace: "demo", Principal: "ann"},
	} {
		_, err := d.Get(t.Context(), by, wire.GetRequest{ID: mine.ID})
		refused(t, err, fault.NotFound, mine.ID)
		_, err = d.Get(t.Context(), by, wire.GetRequest{Key: "k"})
		refused(t, err, fault.NotFound, `"k"`)
		_, err = d.Forget(t.Context(), by, wire.ForgetRequest{ID: mine.ID})
		refused(t, err, fault.NotFound, mine.ID)
		_, err = d.Supersede(t.Context(), by, wire.SupersedeRequest{ID: mine.ID, Text: "x"})
		refused(t, err, fault.NotFound, mine.ID)
		found, err := d.Search(t.Context(), by, wire.SearchRequest{Query: "mine"})
		require.NoError(t, err)
		require.Empty(t, found.Hits)
		listed, err := d.List(t.Context(), by, wire.ListRequest{AllVersions: true})
		require.NoError(t, err)
		require.Empty(t, listed.Items)
		gone, err := d.Forget(t.Context(), by, wire.ForgetRequest{All: true})
		require.NoError(t, err)
		require.Zero(t, gone.Count)
		theirs, err := d.Add(t.Context(), by, wire.AddRequest{Key: "k", Text: "mine", SubmissionKey: "s"})
		require.NoError(t, err)
		require.False(t, theirs.Duplicate)
	}
	got, err := d.Get(t.Context(), ann, wire.GetRequest{ID: mine.ID})
	require.NoError(t, err)
	require.Equal(t, mine, got.Item)
}

// Every operation refuses a caller who is in no workspace.
func TestNoWorkspace(t *testing.T) {
	d := open(t, memory.Limits{})
	for _, by := range []mesh.Caller{
		{Tenant: "acme", Workspace: "-", Principal: "ann"}, {Tenant: "acme", Workspace: "", Principal: "ann"},
		{Tenant: "..", Workspace: "demo", Principal: "ann"}, {Tenant: "acme", Workspace: "../x", Principal: "ann"},
	} {
		for name, call := range map[string]func() error{
			"add": func() error { _, err := d.Add(t.Context(), by, wire.AddRequest{Text: "x"}); return err },
			"supersede": func() error {
				_, err := d.Supersede(t.Context(), by, wire.SupersedeRequest{Key: "k", Text: "x"})
				return err
			},
			"get":     func() error { _, err := d.Get(t.Context(), by, wire.GetRequest{Key: "k"}); return err },
			"search":  func() error { _, err := d.Search(t.Context(), by, wire.SearchRequest{Query: "x"}); return err },
			"list":    func() error { _, err := d.List(t.Context(), by, wire.ListRequest{}); return err },
			"forget":  func() error { _, err := d.Forget(t.Context(), by, wire.ForgetRequest{All: true}); return err },
			"history": func() error { _, err := d.History(t.Context(), by, wire.HistoryRequest{Key: "k"}); return err },
			"context": func() error { _, err := d.Context(t.Context(), by, wire.ContextRequest{}); return err },
		} {
			require.True(t, fault.Is(call(), fault.Invalid), "%s by %v", name, by)
		}
	}
}

func TestDelete(t *testing.T) {
	d := open(t, memory.Limits{})
	manager := mesh.Caller{Principal: "workspace-manager"}
	d.remember(t, wire.AddRequest{Text: "x"})
	for range 2 {
		_, err := d.DeleteWorkspace(t.Context(), manager, wire.DeleteWorkspaceRequest{Tenant: "acme", Workspace: "demo"})
		require.NoError(t, err)
	}
	listed, err := d.List(t.Context(), ann, wire.ListRequest{AllVersions: true})
	require.NoError(t, err)
	require.Empty(t, listed.Items)
	d.remember(t, wire.AddRequest{Text: "x"})
	for range 2 {
		_, err = d.DeleteTenant(t.Context(), manager, wire.DeleteTenantRequest{Tenant: "acme"})
		require.NoError(t, err)
	}
	listed, err = d.List(t.Context(), ann, wire.ListRequest{AllVersions: true})
	require.NoError(t, err)
	require.Empty(t, listed.Items)
	for _, bad := range []string{"", "-", "..", "a/b", "A"} {
		_, err = d.DeleteTenant(t.Context(), manager, wire.DeleteTenantRequest{Tenant: bad})
		refused(t, err, fault.Invalid, "DNS label")
		_, err = d.DeleteWorkspace(t.Context(), manager, wire.DeleteWorkspaceRequest{Tenant: "acme", Workspace: bad})
		refused(t, err, fault.Invalid, "DNS label")
	}
}

func words(n int, format string) string {
	w := make([]string, n)
	for i := range w {
		w[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(w, " ")
}
