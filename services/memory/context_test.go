package memory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

// shape is a context in short: section and text of each block.
func shape(reply wire.ContextReply) []string {
	out := []string{}
	for _, b := range reply.Blocks {
		out = append(out, string(b.Section)+": "+b.Text)
	}
	return out
}

func TestContext(t *testing.T) {
	d := open(t, memory.Limits{})
	d.remember(t, wire.AddRequest{Text: "the deployment runs at night", Key: "deploy"})
	for i := range 60 {
		d.remember(t, wire.AddRequest{Text: fmt.Sprintf("note %02d of the day", i), Kind: wire.Episodic})
	}
	d.remember(t, wire.AddRequest{Text: "answer in English", Pinned: true})
	d.remember(t, wire.AddRequest{Text: "be brief", Pinned: true})

	req := wire.ContextRequest{Query: "when do deployments run?", Budget: 80}
	reply, err := d.Context(t.Context(), ann, req)
	require.NoError(t, err)
	require.Equal(t, []string{
		"pinned: be brief", "pinned: answer in English",
		"recent: note 56 of the day", "recent: note 57 of the day", "recent: note 58 of the day", "recent: note 59 of the day",
		"recalled: the deployment runs at night",
	}, shape(reply))
	sum := 0
	for _, b := range reply.Blocks {
		require.Equal(t, memory.Tokens(b.Text), b.Tokens)
		sum += b.Tokens
	}
	require.Equal(t, sum, reply.Tokens)
	require.LessOrEqual(t, reply.Tokens, req.Budget)
	require.Positive(t, reply.Omitted)
	again, err := d.Context(t.Context(), ann, req)
	require.NoError(t, err)
	require.Equal(t, reply, again, "the same memory gives the same context")

	reply, err = d.Context(t.Context(), ann, wire.ContextRequest{Budget: 80})
	require.NoError(t, err)
	require.Greater(t, len(reply.Blocks), 12, "without a query recent items get the rest")

	reply, err = d.Context(t.Context(), ann, wire.ContextRequest{Query: "deployment", Kinds: []wire.Kind{wire.Semantic}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"pinned: be brief", "pinned: answer in English", "recent: the deployment runs at night",
	}, shape(reply), "no item twice")
}

func TestContextCuts(t *testing.T) {
	d := open(t, memory.Limits{})
	d.remember(t, wire.AddRequest{Text: words(500, "word%d"), Pinned: true})
	for budget := 1; budget < 400; budget += 7 {
		reply, err := d.Context(t.Context(), ann, wire.ContextRequest{Budget: budget})
		require.NoError(t, err)
		require.LessOrEqual(t, reply.Tokens, budget)
		for _, b := range reply.Blocks {
			require.True(t, b.Truncated)
			require.True(t, strings.HasSuffix(b.Text, "…"))
		}
	}
	reply, err := d.Context(t.Context(), ann, wire.ContextRequest{Budget: 10})
	require.NoError(t, err)
	require.Empty(t, reply.Blocks, "too little to be worth reading")
	for _, budget := range []int{-1, wire.MaxContextTokens + 1} {
		_, err := d.Context(t.Context(), ann, wire.ContextRequest{Budget: budget})
		refused(t, err, fault.Invalid, "budget")
	}
}

// An empty workspace has an empty context, with a list in it and no null.
func TestContextOfNothing(t *testing.T) {
	reply, err := open(t, memory.Limits{}).Context(t.Context(), ann, wire.ContextRequest{Query: "x"})
	require.NoError(t, err)
	require.NotNil(t, reply.Blocks)
	require.Empty(t, reply.Blocks)
	require.Equal(t, 4000, reply.Budget)
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]int{"": 0, "a": 1, "four": 1, "fives": 2, "日本": 2, "é": 1, "naïve": 2} {
		require.Equal(t, want, memory.Tokens(text), text)
	}
}
