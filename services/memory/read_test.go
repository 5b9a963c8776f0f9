package memory_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

func TestGet(t *testing.T) {
	d := open(t, memory.Limits{})
	v1 := d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	_, err := d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "v2"})
	require.NoError(t, err)
	at := v1.ValidFrom
	before, never := at.Add(-time.Second), time.Time{}
	for _, c := range []struct {
		req  wire.GetRequest
		want string
		code fault.Code
	}{
		{wire.GetRequest{ID: v1.ID}, "v1", ""},
		{wire.GetRequest{Key: "k"}, "v2", ""},
		{wire.GetRequest{Key: "k", AsOf: &at}, "v1", ""},
		{wire.GetRequest{Key: "k", AsOf: &before}, `no valid item with key "k"`, fault.NotFound},
		{wire.GetRequest{Key: "k", AsOf: &never}, "no valid item", fault.NotFound},
		{wire.GetRequest{Key: "nobody"}, "no valid item", fault.NotFound},
		{wire.GetRequest{ID: schemas.NewID()}, "no item", fault.NotFound},
		{wire.GetRequest{}, "either id or key", fault.Invalid},
		{wire.GetRequest{ID: v1.ID, Key: "k"}, "either id or key", fault.Invalid},
		{wire.GetRequest{ID: v1.ID, AsOf: &at}, "as_of goes with a key", fault.Invalid},
		{wire.GetRequest{ID: "x"}, "id", fault.Invalid},
		{wire.GetRequest{Key: "\xff"}, "UTF-8", fault.Invalid},
	} {
		got, err := d.Get(t.Context(), ann, c.req)
		if c.code != "" {
			refused(t, err, c.code, c.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got.Item.Text)
	}
}

func TestList(t *testing.T) {
	d := open(t, memory.Limits{})
	for i := range 7 {
		d.remember(t, wire.AddRequest{Text: fmt.Sprint(i), Tags: []string{fmt.Sprint("t", i%2)}})
	}
	var texts []string
	req := wire.ListRequest{Limit: 3}
	for {
		page, err := d.List(t.Context(), ann, req)
		require.NoError(t, err)
		for _, it := range page.Items {
			texts = append(texts, it.Text)
		}
		d.remember(t, wire.AddRequest{Text: "added meanwhile"})
		if req.Cursor = page.NextCursor; req.Cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"6", "5", "4", "3", "2", "1", "0"}, texts)

	page, err := d.List(t.Context(), ann, wire.ListRequest{Filter: wire.Filter{Tags: []string{"t1"}}})
	require.NoError(t, err)
	require.Len(t, page.Items, 3)

	now := epoch
	for _, c := range []struct {
		req  wire.ListRequest
		want string
	}{
		{wire.ListRequest{Limit: 101}, "limit 101"},
		{wire.ListRequest{Limit: -1}, "limit -1"},
		{wire.ListRequest{Cursor: "!"}, "cursor"},
		{wire.ListRequest{Cursor: "MS54"}, "cursor"},
		{wire.ListRequest{Cursor: strings.Repeat("A", 1000)}, "cursor"},
		{wire.ListRequest{AllVersions: true, AsOf: &now}, "exclude each other"},
		{wire.ListRequest{Filter: wire.Filter{Kinds: []wire.Kind{"x"}}}, "kind"},
		{wire.ListRequest{Filter: wire.Filter{Tags: []string{" "}}}, "tag"},
		{wire.ListRequest{Filter: wire.Filter{Principal: "*"}}, "principal"},
		{wire.ListRequest{Filter: wire.Filter{Task: "x"}}, "task"},
		{wire.ListRequest{Filter: wire.Filter{KeyPrefix: "\xff"}}, "key_prefix"},
	} {
		_, err := d.List(t.Context(), ann, c.req)
		refused(t, err, fault.Invalid, c.want)
	}
}

func TestHistory(t *testing.T) {
	d := open(t, memory.Limits{})
	d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	for _, text := range []string{"v2", "v3", "v4"} {
		_, err := d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: text})
		require.NoError(t, err)
	}
	d.remember(t, wire.AddRequest{Key: "k2", Text: "of another key"})
	page, err := d.History(t.Context(), ann, wire.HistoryRequest{Key: "k", Limit: 3})
	require.NoError(t, err)
	require.Len(t, page.Items, 3)
	require.Equal(t, []string{"v4", "v3", "v2"}, []string{page.Items[0].Text, page.Items[1].Text, page.Items[2].Text})
	page, err = d.History(t.Context(), ann, wire.HistoryRequest{Key: "k", Limit: 3, Cursor: page.NextCursor})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.Empty(t, page.NextCursor)
	page, err = d.History(t.Context(), ann, wire.HistoryRequest{Key: "nobody"})
	require.NoError(t, err)
	require.Empty(t, page.Items)
	_, err = d.History(t.Context(), ann, wire.HistoryRequest{})
	refused(t, err, fault.Invalid, "key is empty")
}

func TestSearch(t *testing.T) {
	d := open(t, memory.Limits{})
	long := words(100, "filler%d") + " the certificate of the gateway expired on Tuesday " + words(100, "padding%d")
	for _, text := range []string{long, "gateways are restarted at night", "lunch is at noon", "tea at four", "nothing else", "bread and butter"} {
		d.remember(t, wire.AddRequest{Text: text})
	}
	reply, err := d.Search(t.Context(), ann, wire.SearchRequest{Query: "When did the gateway's certificates expire?"})
	require.NoError(t, err)
	require.Len(t, reply.Hits, 2)
	require.Equal(t, long, reply.Hits[0].Item.Text)
	snippet := reply.Hits[0].Snippet
	require.Contains(t, snippet, "certificate of the gateway expired")
	require.True(t, strings.HasPrefix(snippet, "…") && strings.HasSuffix(snippet, "…"), snippet)
	require.Less(t, len(snippet), 220)
	require.Equal(t, "gateways are restarted at night", reply.Hits[1].Snippet)
	require.Empty(t, reply.NextCursor)

	for _, q := range []string{"", "?!", "submarine"} {
		reply, err := d.Search(t.Context(), ann, wire.SearchRequest{Query: q})
		require.NoError(t, err)
		require.NotNil(t, reply.Hits)
		require.Empty(t, reply.Hits)
	}
}

// The pages of a search show what was there at the first, each once.
func TestSearchPages(t *testing.T) {
	d := open(t, memory.Limits{})
	for i := range 11 {
		d.remember(t, wire.AddRequest{Key: fmt.Sprint("k", i), Text: fmt.Sprint("apple ", i)})
	}
	seen := map[string]int{}
	req := wire.SearchRequest{Query: "apples", Limit: 4}
	pages := 0
	for {
		page, err := d.Search(t.Context(), ann, req)
		require.NoError(t, err)
		for _, h := range page.Hits {
			seen[h.Item.Text]++
		}
		pages++
		d.remember(t, wire.AddRequest{Text: "apple apple apple"})
		_, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: fmt.Sprint("k", pages), Text: "pear"})
		require.NoError(t, err)
		if req.Cursor = page.NextCursor; req.Cursor == "" {
			break
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, seen, 11)
	for text, n := range seen {
		require.Equal(t, 1, n, text)
	}
	for _, c := range []struct {
		req  wire.SearchRequest
		want string
	}{
		{wire.SearchRequest{Query: "a\xff"}, "query is not valid UTF-8"},
		{wire.SearchRequest{Query: strings.Repeat("x", wire.MaxText+1)}, "query has"},
		{wire.SearchRequest{Query: "x", Limit: 101}, "limit"},
		{wire.SearchRequest{Query: "x", Kinds: []wire.Kind{"x"}}, "kind"},
		{wire.SearchRequest{Query: "x", Tags: []string{""}}, "tag"},
		{wire.SearchRequest{Query: "x", Cursor: "zz"}, "cursor"},
		{wire.SearchRequest{Query: "x", Cursor: "MS45OTk5"}, "cursor"}, // offset 9999
	} {
		_, err := d.Search(t.Context(), ann, c.req)
		refused(t, err, fault.Invalid, c.want)
	}
}

func FuzzCursor(f *testing.F) {
	d := open(f, memory.Limits{})
	for i := range 3 {
		d.remember(f, wire.AddRequest{Text: fmt.Sprint("word ", i)})
	}
	page, err := d.List(f.Context(), ann, wire.ListRequest{Limit: 1})
	require.NoError(f, err)
	f.Add(page.NextCursor)
	found, err := d.Search(f.Context(), ann, wire.SearchRequest{Query: "word", Limit: 1})
	require.NoError(f, err)
	f.Add(found.NextCursor)
	f.Fuzz(func(t *testing.T, cursor string) {
		_, err := d.List(t.Context(), ann, wire.ListRequest{Cursor: cursor})
		require.True(t, err == nil || fault.Is(err, fault.Invalid), err)
		_, err = d.Search(t.Context(), ann, wire.SearchRequest{Query: "word", Cursor: cursor})
		require.True(t, err == nil || fault.Is(err, fault.Invalid), err)
	})
}
