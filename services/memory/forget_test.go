package memory_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

func TestForget(t *testing.T) {
	d := open(t, memory.Limits{})
	one := d.remember(t, wire.AddRequest{Text: "one"})
	reply, err := d.Forget(t.Context(), ann, wire.ForgetRequest{ID: one.ID})
	require.NoError(t, err)
	require.Equal(t, 1, reply.Count)
	_, err = d.Get(t.Context(), ann, wire.GetRequest{ID: one.ID})
	refused(t, err, fault.NotFound, "item "+one.ID+" was forgotten")
	_, err = d.Forget(t.Context(), ann, wire.ForgetRequest{ID: one.ID})
	refused(t, err, fault.NotFound, "was forgotten")
	_, err = d.Forget(t.Context(), ann, wire.ForgetRequest{ID: schemas.NewID()})
	refused(t, err, fault.NotFound, "no item")

	d.remember(t, wire.AddRequest{Key: "k", Text: "v1"})
	_, err = d.Supersede(t.Context(), ann, wire.SupersedeRequest{Key: "k", Text: "v2"})
	require.NoError(t, err)
	reply, err = d.Forget(t.Context(), ann, wire.ForgetRequest{Filter: &wire.Filter{Key: "k"}})
	require.NoError(t, err)
	require.Equal(t, 2, reply.Count, "every version")
}

// More than one step of a forget.
func TestForgetMany(t *testing.T) {
	d := open(t, memory.Limits{})
	for i := range 450 {
		d.remember(t, wire.AddRequest{Text: fmt.Sprint(i), Tags: []string{fmt.Sprint("t", i%10)}})
	}
	reply, err := d.Forget(t.Context(), ann, wire.ForgetRequest{Filter: &wire.Filter{Tags: []string{"t3"}}})
	require.NoError(t, err)
	require.Equal(t, 45, reply.Count)
	reply, err = d.Forget(t.Context(), ann, wire.ForgetRequest{All: true})
	require.NoError(t, err)
	require.Equal(t, 405, reply.Count)
}

func TestForgetRefuses(t *testing.T) {
	d := open(t, memory.Limits{})
	one := d.remember(t, wire.AddRequest{Text: "one"})
	for _, c := range []struct {
		req  wire.ForgetRequest
		want string
	}{
		{wire.ForgetRequest{}, "say what to forget"},
		{wire.ForgetRequest{ID: one.ID, All: true}, "say what to forget"},
		{wire.ForgetRequest{Filter: &wire.Filter{}}, "say all if that is meant"},
		{wire.ForgetRequest{Filter: &wire.Filter{Tags: []string{}, Kinds: []wire.Kind{}}}, "say all if that is meant"},
		{wire.ForgetRequest{Filter: &wire.Filter{Tags: []string{""}}}, "tag"},
		{wire.ForgetRequest{ID: "*"}, "id"},
	} {
		_, err := d.Forget(t.Context(), ann, c.req)
		refused(t, err, fault.Invalid, c.want)
	}
	_, err := d.Get(t.Context(), ann, wire.GetRequest{ID: one.ID})
	require.NoError(t, err)
}
