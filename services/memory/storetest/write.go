package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

func addAndGet(t *testing.T, b *bench) {
	want := b.item("the build takes four minutes", key("build/time"), tags("build", "ci"), func(it *memory.Item) {
		it.Data = json.RawMessage(`{"minutes":4}`)
		it.Pinned = true
		it.Source = memory.Source{Principal: "ann", Task: schemas.NewID(), Attempt: 3}
	})
	got, err := b.Add(t.Context(), b.sc, want, 10)
	require.NoError(t, err)
	want.Version = 1
	require.Equal(t, want, got)

	got, err = b.Get(t.Context(), b.sc, want.ID)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = b.ByKey(t.Context(), b.sc, "build/time", b.now())
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = b.Get(t.Context(), b.sc, schemas.NewID())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = b.ByKey(t.Context(), b.sc, "build", b.now())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = b.ByKey(t.Context(), b.sc, "", b.now())
	require.ErrorIs(t, err, store.ErrNotFound)
}

func addTwice(t *testing.T, b *bench) {
	first := b.add(t, "once")
	again := b.item("once more")
	again.ID = first.ID
	_, err := b.Add(t.Context(), b.sc, again, 10)
	var exists *store.Exists
	require.ErrorAs(t, err, &exists)
	require.Equal(t, first, exists.Item)
}

func keyTaken(t *testing.T, b *bench) {
	first := b.add(t, "v1", key("k"))
	second := b.replace(t, "k", "v2")
	_, err := b.Add(t.Context(), b.sc, b.item("v3", key("k")), 10)
	var taken *store.KeyTaken
	require.ErrorAs(t, err, &taken)
	require.Equal(t, store.KeyTaken{ID: second.ID, Version: 2}, *taken)
	require.NotEqual(t, first.ID, second.ID)

	b.add(t, "without a key")
	b.add(t, "without a key")
}

// parallel runs f n times at once and gives the errors.
func parallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func racingAdds(t *testing.T, b *bench) {
	const n = 8
	items := make([]memory.Item, n)
	for i := range items {
		items[i] = b.item(fmt.Sprint(i), key("k"))
	}
	won := 0
	for _, err := range parallel(n, func(i int) error {
		_, err := b.Add(t.Context(), b.sc, items[i], 1000)
		return err
	}) {
		var taken *store.KeyTaken
		if err == nil {
			won++
		} else {
			require.ErrorAs(t, err, &taken)
		}
	}
	require.Equal(t, 1, won)
}

func quota(t *testing.T, b *bench) {
	for range 3 {
		_, err := b.Add(t.Context(), b.sc, b.item("x"), 3)
		require.NoError(t, err)
	}
	_, err := b.Add(t.Context(), b.sc, b.item("x"), 3)
	require.ErrorIs(t, err, store.ErrFull)
	r := b.replacement("k", "x")
	r.Upsert, r.MaxItems = true, 3
	_, err = b.Supersede(t.Context(), b.sc, r)
	require.ErrorIs(t, err, store.ErrFull)

	n, err := b.Forget(t.Context(), b.sc, store.Filter{AllVersions: true}, store.Mark{By: "ann", At: b.now()}, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = b.Add(t.Context(), b.sc, b.item("x"), 3)
	require.NoError(t, err)

	if b.gaps.ApproximateQuota {
		return
	}
	b.sc.Workspace = "other"
	added := 0
	items := [8]memory.Item{}
	for i := range items {
		items[i] = b.item("x")
	}
	for _, err := range parallel(len(items), func(i int) error {
		_, err := b.Add(t.Context(), b.sc, items[i], 3)
		return err
	}) {
		if err == nil {
			added++
		} else {
			require.ErrorIs(t, err, store.ErrFull)
		}
	}
	require.Equal(t, 3, added)
}

func supersede(t *testing.T, b *bench) {
	first := b.add(t, "v1", key("k"), tags("a"))
	second := b.replace(t, "k", "v2")
	require.Equal(t, 2, second.Version)
	require.Equal(t, first.ID, second.Supersedes)
	require.Nil(t, second.ValidTo)

	old, err := b.Get(t.Context(), b.sc, first.ID)
	require.NoError(t, err)
	require.Equal(t, second.ValidFrom, *old.ValidTo)
	require.Equal(t, second.ID, old.SupersededBy)
	old.ValidTo, old.SupersededBy = nil, ""
	require.Equal(t, first, old, "nothing else of it changes")

	plain := b.add(t, "no key")
	r := b.replacement("", "its successor")
	r.ID = plain.ID
	next, err := b.Supersede(t.Context(), b.sc, r)
	require.NoError(t, err)
	require.Equal(t, 2, next.Version)
	got, err := b.Get(t.Context(), b.sc, plain.ID)
	require.NoError(t, err)
	require.Equal(t, next.ID, got.SupersededBy)

	items, err := b.List(t.Context(), b.sc, store.Filter{}, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"its successor", "v2"}, texts(items))
	items, err = b.List(t.Context(), b.sc, store.Filter{Key: "k", AllVersions: true}, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"v2", "v1"}, texts(items))
}

func supersedeRefuses(t *testing.T, b *bench) {
	first := b.add(t, "v1", key("k"))
	second := b.replace(t, "k", "v2")

	_, err := b.Supersede(t.Context(), b.sc, b.replacement("nobody", "x"))
	require.ErrorIs(t, err, store.ErrNotFound)

	r := b.replacement("", "x")
	r.ID = first.ID
	_, err = b.Supersede(t.Context(), b.sc, r)
	require.ErrorIs(t, err, store.ErrNotFound, "it is not valid any more")
	r.ID = schemas.NewID()
	_, err = b.Supersede(t.Context(), b.sc, r)
	require.ErrorIs(t, err, store.ErrNotFound)

	r = b.replacement("k", "x")
	r.Expected = new(int)
	*r.Expected = 1
	_, err = b.Supersede(t.Context(), b.sc, r)
	var mismatch *store.VersionMismatch
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, store.VersionMismatch{Expected: 1, Actual: 2}, *mismatch)

	r = b.replacement("k", "x")
	r.NewID = second.ID
	_, err = b.Supersede(t.Context(), b.sc, r)
	var exists *store.Exists
	require.ErrorAs(t, err, &exists)
	require.Equal(t, "v2", exists.Item.Text)

	r = b.replacement("k", "x")
	r.Build = func(*memory.Item) (memory.Item, error) { return memory.Item{}, errors.New("not so") }
	_, err = b.Supersede(t.Context(), b.sc, r)
	require.ErrorContains(t, err, "not so")

	got, err := b.ByKey(t.Context(), b.sc, "k", b.now())
	require.NoError(t, err)
	require.Equal(t, second, got, "none of it had an effect")
}

func upsert(t *testing.T, b *bench) {
	r := b.replacement("k", "v1")
	r.Upsert, r.Expected = true, new(int)
	it, err := b.Supersede(t.Context(), b.sc, r)
	require.NoError(t, err)
	require.Equal(t, 1, it.Version)
	require.Empty(t, it.Supersedes)

	r = b.replacement("k", "v2")
	r.Upsert, r.Expected = true, new(int)
	_, err = b.Supersede(t.Context(), b.sc, r)
	var mismatch *store.VersionMismatch
	require.ErrorAs(t, err, &mismatch)

	r.Expected = nil
	it, err = b.Supersede(t.Context(), b.sc, r)
	require.NoError(t, err)
	require.Equal(t, 2, it.Version)

	const n = 6
	rs := make([]store.Supersede, n)
	for i := range rs {
		rs[i] = b.replacement("raced", fmt.Sprint(i))
		rs[i].Upsert = true
	}
	for _, err := range parallel(n, func(i int) error {
		_, err := b.Supersede(context.WithoutCancel(t.Context()), b.sc, rs[i])
		return err
	}) {
		require.NoError(t, err)
	}
	oneChain(t, b, "raced", n)
}

func racingSupersedes(t *testing.T, b *bench) {
	const n = 8
	b.add(t, "start", key("k"))
	rs := make([]store.Supersede, n)
	for i := range rs {
		rs[i] = b.replacement("k", fmt.Sprint(i))
	}
	for _, err := range parallel(n, func(i int) error {
		_, err := b.Supersede(t.Context(), b.sc, rs[i])
		return err
	}) {
		require.NoError(t, err)
	}
	oneChain(t, b, "k", n+1)
}

// oneChain checks that the n versions of key follow one another without a gap, each valid until the next.
func oneChain(t *testing.T, b *bench, key string, n int) {
	t.Helper()
	items, err := b.List(t.Context(), b.sc, store.Filter{Key: key, AllVersions: true}, store.Position{}, 100)
	require.NoError(t, err)
	require.Len(t, items, n)
	byVersion := map[int]memory.Item{}
	for _, it := range items {
		byVersion[it.Version] = it
	}
	for v := 1; v <= n; v++ {
		it, ok := byVersion[v]
		require.True(t, ok, "version %d", v)
		if v == n {
			require.Nil(t, it.ValidTo)
			require.Empty(t, it.SupersededBy)
			continue
		}
		next := byVersion[v+1]
		require.Equal(t, it.ID, next.Supersedes)
		require.Equal(t, next.ID, it.SupersededBy)
		require.NotNil(t, it.ValidTo)
		require.Equal(t, next.ValidFrom, *it.ValidTo)
	}
}

func racingExpected(t *testing.T, b *bench) {
	const n = 8
	first := b.add(t, "start", key("k"))
	rs := make([]store.Supersede, n)
	for i := range rs {
		rs[i] = b.replacement("k", fmt.Sprint(i))
		rs[i].Expected = &first.Version
	}
	won := 0
	for _, err := range parallel(n, func(i int) error {
		_, err := b.Supersede(t.Context(), b.sc, rs[i])
		return err
	}) {
		var mismatch *store.VersionMismatch
		if err == nil {
			won++
		} else {
			require.ErrorAs(t, err, &mismatch)
		}
	}
	require.Equal(t, 1, won)
	oneChain(t, b, "k", 2)
}

func oddValues(t *testing.T, b *bench) {
	for _, text := range []string{
		"quotes ' \" ` and \\ and %_ and $where and {\"$gt\": 1}", "x'; DROP TABLE items; --",
		"日本語のテキスト", "emoji 👩‍👩‍👧 é", "\u202e right to left", strings.Repeat("long ", 13_000), "\t\n\r",
	} {
		k := strings.ToValidUTF8(text[:min(len(text), 5)], "")
		want := b.add(t, text, key(k), tags("$tag", "a'b", "x.y"), func(it *memory.Item) {
			it.Data = json.RawMessage(`{"$set":{"a.b":"'"},"é":[1.5,null,12345678901234567]}`)
		})
		got, err := b.Get(t.Context(), b.sc, want.ID)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = b.ByKey(t.Context(), b.sc, k, b.now())
		require.NoError(t, err)
		require.Equal(t, want.ID, got.ID)
	}
	items, err := b.List(t.Context(), b.sc, store.Filter{Tags: []string{"$tag", "a'b"}}, store.Position{}, 100)
	require.NoError(t, err)
	require.Len(t, items, 7)
	items, err = b.List(t.Context(), b.sc, store.Filter{KeyPrefix: "日"}, store.Position{}, 100)
	require.NoError(t, err)
	require.Len(t, items, 1)
	items, err = b.List(t.Context(), b.sc, store.Filter{KeyPrefix: ".*"}, store.Position{}, 100)
	require.NoError(t, err)
	require.Empty(t, items)
}
