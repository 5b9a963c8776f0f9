package memory_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

func TestSupersede(t *testing.T) {
	d := open(t, memory.Limits{})
	old := d.remember(t, wire.AddRequest{
		Kind: wire.Procedural, Key: "deploy", Text: "by hand", Tags: []string{"ops"}, Data: json.RawMessage(`{"steps":9}`), Pinned: true,
	})
	reply, err := d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "deploy", Kind: wire.Episodic, Text: "by the pipeline"})
	require.NoError(t, err)
	require.Equal(t, old.ID, reply.Superseded)
	it := reply.Item
	require.Equal(t, wire.Item{
		ID: it.ID, Workspace: "demo", Kind: wire.Procedural, Key: "deploy", Text: "by the pipeline", Tags: []string{"ops"}, Pinned: true,
		Source: wire.Source{Principal: "ann"}, Version: 2, Supersedes: old.ID, CreatedAt: it.CreatedAt, ValidFrom: it.CreatedAt,
	}, it, "kind, tags and pin are kept, data is not")

	no := false
	reply, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{ID: it.ID, Text: "by nobody", Tags: []string{}, Pinned: &no})
	require.NoError(t, err)
	require.Equal(t, 3, reply.Item.Version)
	require.Equal(t, "deploy", reply.Item.Key)
	require.Empty(t, reply.Item.Tags)
	require.False(t, reply.Item.Pinned)

	got, err := d.Get(t.Context(), ann, wire.GetRequest{ID: old.ID})
	require.NoError(t, err)
	require.Equal(t, "by hand", got.Item.Text)
	require.Equal(t, it.ID, got.Item.SupersededBy)
	require.Equal(t, it.ValidFrom, *got.Item.ValidTo)
}

func TestSupersedeExpectedVersion(t *testing.T) {
	d := open(t, memory.Limits{})
	d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	one := 1
	_, err := d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "v2", ExpectedVersion: &one})
	require.NoError(t, err)
	_, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "v2 of another", ExpectedVersion: &one})
	refused(t, err, fault.Conflict, "found version 2")
	_, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "new", Text: "x", ExpectedVersion: &one, Upsert: true})
	refused(t, err, fault.Conflict, "it has no valid item")
}

func TestSupersedeUpsert(t *testing.T) {
	d := open(t, memory.Limits{})
	zero := 0
	req := wire.SupersedeRequest{Key: "k", Kind: wire.Episodic, Text: "v1", Upsert: true, ExpectedVersion: &zero}
	reply, err := d.Supersede(t.Context(), ann, req)
	require.NoError(t, err)
	require.Empty(t, reply.Superseded)
	require.Equal(t, wire.Episodic, reply.Item.Kind)
	_, err = d.Supersede(t.Context(), ann, req)
	refused(t, err, fault.Conflict, "expected version 0")
}

func TestSupersedeTwice(t *testing.T) {
	d := open(t, memory.Limits{})
	old := d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	req := wire.SupersedeRequest{SubmissionKey: "s", Key: "k", Text: "v2"}
	first, err := d.Supersede(t.Context(), ann, req)
	require.NoError(t, err)
	again, err := d.Supersede(t.Context(), ann, req)
	require.NoError(t, err)
	require.Equal(t, wire.SupersedeReply{Item: first.Item, Superseded: old.ID, Duplicate: true}, again)
	req.Text = "v3"
	_, err = d.Supersede(t.Context(), ann, req)
	refused(t, err, fault.Conflict, "was used for something else")
	_, err = d.Forget(t.Context(), ann, wire.ForgetRequest{ID: first.Item.ID})
	require.NoError(t, err)
	req.Text = "v2"
	_, err = d.Supersede(t.Context(), ann, req)
	refused(t, err, fault.Conflict, "was forgotten")
}

func TestSupersedeRefuses(t *testing.T) {
	d := open(t, memory.Limits{})
	old := d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	minus, zero := -1, 0
	before := old.ValidFrom.Add(-time.Hour)
	for _, c := range []struct {
		req  wire.SupersedeRequest
		code fault.Code
		want string
	}{
		{wire.SupersedeRequest{Text: "x"}, fault.Invalid, "either id or key"},
		{wire.SupersedeRequest{ID: old.ID, Key: "k", Text: "x"}, fault.Invalid, "either id or key"},
		{wire.SupersedeRequest{ID: "../x", Text: "x"}, fault.Invalid, "id"},
		{wire.SupersedeRequest{ID: old.ID, Upsert: true, Text: "x"}, fault.Invalid, "upsert needs a key"},
		{wire.SupersedeRequest{Key: "k", Text: "x", ExpectedVersion: &minus}, fault.Invalid, "negative"},
		{wire.SupersedeRequest{Key: "k", Text: "x", ExpectedVersion: &zero}, fault.Invalid, "needs upsert"},
		{wire.SupersedeRequest{Key: "k"}, fault.Invalid, "text is empty"},
		{wire.SupersedeRequest{Key: "k", Text: "x", ValidFrom: &before}, fault.Invalid, "valid_from must be after"},
		{wire.SupersedeRequest{Key: "nobody", Text: "x"}, fault.NotFound, `no valid item with key "nobody"`},
		{wire.SupersedeRequest{ID: schemas.NewID(), Text: "x"}, fault.NotFound, "no valid item"},
	} {
		_, err := d.Supersede(t.Context(), ann, c.req)
		refused(t, err, c.code, c.want)
	}
	got, err := d.Get(t.Context(), ann, wire.GetRequest{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, old, got.Item)
}

// A clock that is set back does not disturb the order of versions.
func TestSupersedeWithClockSetBack(t *testing.T) {
	d := open(t, memory.Limits{})
	old := d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	d.now = epoch.Add(-time.Hour)
	reply, err := d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "v2"})
	require.NoError(t, err)
	require.Equal(t, old.ValidFrom.Add(time.Microsecond), reply.Item.ValidFrom)
	d.now = epoch.Add(time.Hour)
	got, err := d.Get(t.Context(), ann, wire.GetRequest{Key: "k", AsOf: &old.ValidFrom})
	require.NoError(t, err)
	require.Equal(t, "v1", got.Item.Text)
}
