package sandbox

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

var update = flag.Bool("update", false, "write the table of attempts into SECURITY.md")

const (
	securityFile = "../../../SECURITY.md"
	tableBegins  = "<!-- hostile attempts: written by go test ./services/runtime/sandbox -run TestHostileTable -update -->"
	tableEnds    = "<!-- end of hostile attempts -->"
)

// TestHostileTable holds SECURITY.md to what TestHostile makes sure of; -update writes it there.
func TestHostileTable(t *testing.T) {
	names := map[string]bool{}
	for _, c := range hostileCases {
		require.False(t, names[c.name], "two attempts are called %s", c.name)
		names[c.name] = true
		require.NotEmpty(t, c.standard, c.name)
		ways := 0
		for _, is := range []bool{c.try != nil, c.node != nil, c.seen != ""} {
			if is {
				ways++
			}
		}
		require.Equal(t, 1, ways, "%s is made in one way", c.name)
		if c.seen != "" {
			requireTest(t, c.seen)
		}
	}
	b, err := os.ReadFile(securityFile)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(b), tableBegins)
	require.True(t, found, "SECURITY.md has no place for the table: %s", tableBegins)
	_, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "SECURITY.md's table has no end: %s", tableEnds)
	want := before + tableBegins + "\n" + hostileTable() + tableEnds + after
	if *update {
		require.NoError(t, os.WriteFile(securityFile, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(b), "run go test ./services/runtime/sandbox -run TestHostileTable -update")
}

// requireTest makes sure that a test that is named, as folder:TestName, is there.
func requireTest(t *testing.T, named string) {
	dir, name, ok := strings.Cut(named, ":")
	require.True(t, ok, named)
	files, err := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(b), "func "+name+"(t *testing.T)") {
			return
		}
	}
	t.Errorf("there is no %s in %s", name, dir)
}

// hostileTable is one table for each area.
func hostileTable() string {
	var b strings.Builder
	area := ""
	for _, c := range hostileCases {
		if c.area != area {
			area = c.area
			fmt.Fprintf(&b, "\n**%s**\n\n| attempt | what it tries | standard | high | root inside: also |\n|---|---|---|---|---|\n", area)
		}
		what := c.what
		if c.seen != "" {
			dir, name, _ := strings.Cut(c.seen, ":")
			what += fmt.Sprintf(" (%s in %s)", name, dir)
		}
		high := words(c.refusal(workspace.LevelHigh))
		if c.seen != "" && c.high == "" {
			high = "as standard: the same code"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.name, strings.ReplaceAll(what, "|", "\\|"), words(c.standard), high, c.forRoot())
	}
	return b.String() + "\n"
}

// forRoot is what root inside gets beyond the level's refusals.
func (c hostileCase) forRoot() string {
	var all []string
	for _, w := range strings.Fields(c.root) {
		all = append(all, strings.Replace(w, "may:", "may ", 1))
	}
	for _, w := range strings.Fields(c.rootHigh) {
		all = append(all, "high: "+strings.Replace(w, "may:", "may ", 1))
	}
	return strings.TrimSpace(strings.Join(all, ", "))
}

func words(s string) string { return strings.Join(strings.Fields(s), ", ") }
