package memory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

func TestAdd(t *testing.T) {
	d := open(t, memory.Limits{})
	task := schemas.NewID()
	yesterday := epoch.Add(-24 * time.Hour)
	got := d.remember(t, wire.AddRequest{
		Kind: wire.Episodic, Key: "build", Text: "it failed", Tags: []string{"b", "a", "b"}, Data: json.RawMessage(` { "n" : 1 } `),
		Pinned: true, ValidFrom: &yesterday, Task: task, Attempt: 2,
	})
	require.NoError(t, schemas.CheckID("id", got.ID))
	require.Equal(t, wire.Item{
		ID: got.ID, Workspace: "demo", Kind: wire.Episodic, Key: "build", Text: "it failed", Tags: []string{"a", "b"},
		Data: json.RawMessage(`{"n":1}`), Pinned: true, Source: wire.Source{Principal: "ann", Task: task, Attempt: 2},
		Version: 1, CreatedAt: epoch.Add(time.Minute), ValidFrom: yesterday,
	}, got)
	require.Equal(t, wire.Semantic, d.remember(t, wire.AddRequest{Text: "x"}).Kind, "the usual kind")

	_, err := d.Add(t.Context(), ann, wire.AddRequest{Key: "build", Text: "again"})
	refused(t, err, fault.Conflict, `key "build" has a valid item already (`+got.ID+`, version 1): supersede it`)
}

func TestAddTwice(t *testing.T) {
	d := open(t, memory.Limits{})
	req := wire.AddRequest{SubmissionKey: "task-1/finding-3", Text: "found", Tags: []string{"x"}}
	first, err := d.Add(t.Context(), ann, req)
	require.NoError(t, err)
	require.False(t, first.Duplicate)
	again, err := d.Add(t.Context(), ann, req)
	require.NoError(t, err)
	require.Equal(t, wire.AddReply{Item: first.Item, Duplicate: true}, again)

	other := req
	other.Text = "found something else"
	_, err = d.Add(t.Context(), ann, other)
	refused(t, err, fault.Conflict, `submission key "task-1/finding-3" was used for something else`)

	bob := mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "bob"}
	theirs, err := d.Add(t.Context(), bob, other)
	require.NoError(t, err, "a submission key is its caller's own")
	require.False(t, theirs.Duplicate)

	_, err = d.Forget(t.Context(), ann, wire.ForgetRequest{ID: first.Item.ID})
	require.NoError(t, err)
	_, err = d.Add(t.Context(), ann, req)
	refused(t, err, fault.Conflict, "was forgotten")
}

func TestAddRefuses(t *testing.T) {
	d := open(t, memory.Limits{Text: 100})
	later := epoch.Add(24 * time.Hour)
	many := strings.Fields(words(33, "t%d"))
	for _, c := range []struct {
		req  wire.AddRequest
		want string
	}{
		{wire.AddRequest{}, "text is empty"},
		{wire.AddRequest{Text: " \n\t"}, "text is empty"},
		{wire.AddRequest{Text: strings.Repeat("x", 101)}, "text has 101 bytes, at most 100 are allowed"},
		{wire.AddRequest{Text: "a\xffb"}, "text is not valid UTF-8"},
		{wire.AddRequest{Text: "a\x00b"}, "NUL"},
		{wire.AddRequest{Text: "x", Kind: "gossip"}, `kind "gossip" must be episodic, semantic or procedural`},
		{wire.AddRequest{Text: "x", Key: strings.Repeat("k", 257)}, "key has 257 bytes"},
		{wire.AddRequest{Text: "x", Key: "a\xff"}, "key is not valid UTF-8"},
		{wire.AddRequest{Text: "x", Key: " a"}, "white space"},
		{wire.AddRequest{Text: "x", Key: "a\nb"}, "control character"},
		{wire.AddRequest{Text: "x", Tags: []string{""}}, "a tag is empty"},
		{wire.AddRequest{Text: "x", Tags: []string{strings.Repeat("t", 65)}}, "a tag has 65 bytes"},
		{wire.AddRequest{Text: "x", Tags: []string{"\xff"}}, "a tag is not valid UTF-8"},
		{wire.AddRequest{Text: "x", Tags: many}, "33 tags"},
		{wire.AddRequest{Text: "x", Data: json.RawMessage(`{"a":`)}, "malformed JSON"},
		{wire.AddRequest{Text: "x", Data: json.RawMessage(`[1]`)}, "JSON object"},
		{wire.AddRequest{Text: "x", Data: json.RawMessage("{\"a\":\"\xff\"}")}, "data is not valid UTF-8"},
		{wire.AddRequest{Text: "x", Data: json.RawMessage(`{"a":"` + strings.Repeat("x", wire.MaxData) + `"}`)}, "data has"},
		{wire.AddRequest{Text: "x", Task: "../.."}, "task"},
		{wire.AddRequest{Text: "x", Attempt: 1}, "attempt 1"},
		{wire.AddRequest{Text: "x", Task: schemas.NewID(), Attempt: -1}, "attempt -1"},
		{wire.AddRequest{Text: "x", ValidFrom: &later}, "in the future"},
		{wire.AddRequest{Text: "x", SubmissionKey: strings.Repeat("s", 300)}, "submission_key"},
	} {
		_, err := d.Add(t.Context(), ann, c.req)
		refused(t, err, fault.Invalid, c.want)
	}
	listed, err := d.List(t.Context(), ann, wire.ListRequest{AllVersions: true})
	require.NoError(t, err)
	require.Empty(t, listed.Items)
}

func TestAddQuota(t *testing.T) {
	d := open(t, memory.Limits{Items: 2})
	first := d.remember(t, wire.AddRequest{Text: "one", SubmissionKey: "one"})
	d.remember(t, wire.AddRequest{Text: "two", Key: "k"})
	_, err := d.Add(t.Context(), ann, wire.AddRequest{Text: "three"})
	refused(t, err, fault.Exhausted, "full (2 items")
	_, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "three"})
	refused(t, err, fault.Exhausted, "full (2 items")
	again, err := d.Add(t.Context(), ann, wire.AddRequest{Text: "one", SubmissionKey: "one"})
	require.NoError(t, err, "a repeated request needs no room")
	require.Equal(t, first, again.Item)
	_, err = d.Forget(t.Context(), ann, wire.ForgetRequest{ID: first.ID})
	require.NoError(t, err)
	d.remember(t, wire.AddRequest{Text: "three"})
}

// The largest items there can be make replies that fit into a message.
func TestLargest(t *testing.T) {
	d := open(t, memory.Limits{})
	for i := range 5 {
		d.remember(t, wire.AddRequest{
			Text: strings.Repeat("\x01", wire.MaxText-10) + fmt.Sprint(" word ", i), // each \x01 is 6 bytes in JSON
			Data: json.RawMessage(`{"a":"` + strings.Repeat("<", wire.MaxData-8) + `"}`),
		})
	}
	var texts []string
	cursor := ""
	for {
		listed, err := d.List(t.Context(), ann, wire.ListRequest{Cursor: cursor})
		require.NoError(t, err)
		body, err := json.Marshal(listed)
		require.NoError(t, err)
		require.Less(t, len(body), schemas.MaxBody)
		for _, it := range listed.Items {
			texts = append(texts, it.Text[len(it.Text)-1:])
		}
		if cursor = listed.NextCursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, texts)
	found, err := d.Search(t.Context(), ann, wire.SearchRequest{Query: "word"})
	require.NoError(t, err)
	require.Len(t, found.Hits, 1)
	require.NotEmpty(t, found.NextCursor)
}
