package submission

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

func TestARunMayOnlyAskForAStrongerLevel(t *testing.T) {
	for _, c := range []struct {
		asked, agent, template string
		ok                     bool
	}{
		{"", "", "", true}, {"", "high", "custom", true}, {"high", "", "", true}, {"high", "standard", "high", true}, {"high", "high", "", true},
		{"standard", "", "", true}, {"standard", "standard", "high", true},
		{"standard", "", "high", false}, {"standard", "high", "standard", false}, {"high", "", "custom", false}, {"custom", "", "custom", false}, {"none", "", "", false},
	} {
		err := CheckLevel(c.asked, &workspace.Agent{Level: c.agent}, &workspace.Template{Level: c.template})
		require.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
	}
	require.NoError(t, CheckLevel("high", nil, &workspace.Template{}))
	s := workspace.Submission{Template: "base", Command: []string{"true"}, Level: "weakest"}
	require.ErrorContains(t, Check(&s), `"level"`)
	s.Level = "high"
	require.NoError(t, Check(&s))
	require.Equal(t, "high", Resolve(&s, "ann", nil, &workspace.Template{Level: "standard"}).Level)
}
