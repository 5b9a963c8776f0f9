package storetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

func (b *bench) drop(t *testing.T, f store.Filter, limit int) int {
	t.Helper()
	n, err := b.Forget(t.Context(), b.sc, f, store.Mark{By: "ann", At: b.now()}, limit)
	require.NoError(t, err)
	return n
}

func forget(t *testing.T, b *bench) {
	a := b.add(t, "private matter", key("a"), tags("x"))
	kept := b.add(t, "public matter", key("b"), tags("x"))
	require.Zero(t, b.drop(t, store.Filter{Tags: []string{"none"}, AllVersions: true}, 10))
	require.Equal(t, 1, b.drop(t, store.Filter{ID: a.ID, AllVersions: true}, 10))
	require.Zero(t, b.drop(t, store.Filter{ID: a.ID, AllVersions: true}, 10), "it is gone already")

	_, err := b.Get(t.Context(), b.sc, a.ID)
	require.ErrorIs(t, err, store.ErrForgotten)
	_, err = b.ByKey(t.Context(), b.sc, "a", b.now())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = b.Add(t.Context(), b.sc, a, 10)
	require.ErrorIs(t, err, store.ErrForgotten, "a repeated request does not bring it back")
	r := b.replacement("b", "x")
	r.NewID = a.ID
	_, err = b.Supersede(t.Context(), b.sc, r)
	require.ErrorIs(t, err, store.ErrForgotten)

	require.Equal(t, []string{"public matter"}, found(b.find(t, store.Query{Terms: []string{"matter", "privat"}})))
	items, err := b.List(t.Context(), b.sc, store.Filter{AllVersions: true, Tags: []string{"x"}}, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []memory.Item{kept}, items)
	b.add(t, "anew", key("a"))
}

func forgetInSteps(t *testing.T, b *bench) {
	for i := range 7 {
		b.add(t, fmt.Sprint("note ", i), kind(memory.Episodic))
	}
	b.add(t, "fact")
	f := store.Filter{Kinds: []memory.Kind{memory.Episodic}, AllVersions: true}
	require.Equal(t, 3, b.drop(t, f, 3))
	require.Equal(t, 3, b.drop(t, f, 3))
	require.Equal(t, 1, b.drop(t, f, 3))
	require.Zero(t, b.drop(t, f, 3))
	items, err := b.List(t.Context(), b.sc, store.Filter{AllVersions: true}, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"fact"}, texts(items))
}

func forgetWithinKey(t *testing.T, b *bench) {
	v1 := b.add(t, "v1", key("k"))
	v2 := b.replace(t, "k", "v2")
	require.Equal(t, 1, b.drop(t, store.Filter{ID: v2.ID, AllVersions: true}, 10))
	_, err := b.ByKey(t.Context(), b.sc, "k", b.now())
	require.ErrorIs(t, err, store.ErrNotFound, "the version before does not come back")
	old, err := b.Get(t.Context(), b.sc, v1.ID)
	require.NoError(t, err)
	require.Equal(t, v2.ID, old.SupersededBy)

	again := b.add(t, "v2 again", key("k"))
	require.Equal(t, 2, again.Version, "above the versions that are left")
	v3 := b.replace(t, "k", "v3")
	require.Equal(t, 3, v3.Version)
	require.Equal(t, 3, b.drop(t, store.Filter{Key: "k", AllVersions: true}, 10))
	items, err := b.List(t.Context(), b.sc, store.Filter{Key: "k", AllVersions: true}, store.Position{}, 10)
	require.NoError(t, err)
	require.Empty(t, items)
	require.Equal(t, 1, b.add(t, "a new life", key("k")).Version)
}

// apart tries each method from another workspace and another tenant, with the ids of this one.
func apart(t *testing.T, b *bench) {
	mine := b.add(t, "mine alone", key("k"), tags("x"))
	for _, sc := range []store.Scope{{Tenant: "acme", Workspace: "other"}, {Tenant: "evil", Workspace: "demo"}, {Tenant: "acm", Workspace: "e-demo"}} {
		foreign := &bench{Store: b.Store, sc: sc, n: b.n, gaps: b.gaps}
		_, err := foreign.Get(t.Context(), sc, mine.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = foreign.ByKey(t.Context(), sc, "k", b.now())
		require.ErrorIs(t, err, store.ErrNotFound)
		items, err := foreign.List(t.Context(), sc, store.Filter{AllVersions: true}, store.Position{}, 10)
		require.NoError(t, err)
		require.Empty(t, items)
		require.Empty(t, foreign.find(t, store.Query{Terms: []string{"mine", "alon"}}))
		require.Zero(t, foreign.drop(t, store.Filter{ID: mine.ID, AllVersions: true}, 10))
		require.Zero(t, foreign.drop(t, store.Filter{AllVersions: true}, 10))
		r := foreign.replacement("k", "taken over")
		_, err = foreign.Supersede(t.Context(), sc, r)
		require.ErrorIs(t, err, store.ErrNotFound)
		r = foreign.replacement("", "taken over")
		r.ID = mine.ID
		_, err = foreign.Supersede(t.Context(), sc, r)
		require.ErrorIs(t, err, store.ErrNotFound)

		same := foreign.item("same id and key", key("k"))
		same.ID = mine.ID
		_, err = foreign.Add(t.Context(), sc, same, 10)
		require.NoError(t, err, "an id or a key of one workspace means nothing in another")
		require.NoError(t, foreign.DeleteWorkspace(t.Context(), sc))
	}
	require.NoError(t, b.DeleteTenant(t.Context(), "evil"))
	got, err := b.Get(t.Context(), b.sc, mine.ID)
	require.NoError(t, err)
	require.Equal(t, mine, got)
}

func deletes(t *testing.T, b *bench) {
	one, two := b.sc, store.Scope{Tenant: b.sc.Tenant, Workspace: "two"}
	a := b.add(t, "in one", key("k"))
	require.Equal(t, 1, b.drop(t, store.Filter{ID: a.ID, AllVersions: true}, 1))
	b.add(t, "in one", key("k"))
	b.sc = two
	kept := b.add(t, "in two")

	require.NoError(t, b.DeleteWorkspace(t.Context(), one))
	require.NoError(t, b.DeleteWorkspace(t.Context(), one), "again does no harm")
	items, err := b.List(t.Context(), one, store.Filter{AllVersions: true}, store.Position{}, 10)
	require.NoError(t, err)
	require.Empty(t, items)
	_, err = b.Get(t.Context(), one, a.ID)
	require.ErrorIs(t, err, store.ErrNotFound, "the tombstones are gone too")
	_, err = b.Get(t.Context(), two, kept.ID)
	require.NoError(t, err)

	b.sc = one
	b.add(t, "a new life", key("k"))
	require.Equal(t, []string{"a new life"}, found(b.find(t, store.Query{Terms: []string{"life", "one"}})))
	require.NoError(t, b.DeleteTenant(t.Context(), one.Tenant))
	require.NoError(t, b.DeleteTenant(t.Context(), one.Tenant))
	for _, sc := range []store.Scope{one, two} {
		items, err := b.List(t.Context(), sc, store.Filter{AllVersions: true}, store.Position{}, 10)
		require.NoError(t, err)
		require.Empty(t, items)
	}
}
