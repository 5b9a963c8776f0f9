package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// testView writes to a buffer, 7.5 s after its beginning.
func testView(width int, color bool) (*view, *bytes.Buffer) {
	var b bytes.Buffer
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	return &view{w: &b, color: color, width: func() int { return width }, start: at, now: func() time.Time { return at.Add(7500 * time.Millisecond) }}, &b
}

func TestViewLines(t *testing.T) {
	v, b := testView(80, false)
	v.heading(2, 10, "Start")
	v.event("36", "analyst services", "running", "task abc attempt 1")
	v.output("36", "analyst a-folder-with-a-long-name", stdout, "hello")
	v.output("36", "analyst x", stderr, "oops")
	v.check(Check{Claim: "it holds", OK: true, Detail: "3 of 3"})
	v.check(Check{Claim: "it does not", Detail: "2 of 3"})
	require.Equal(t, strings.Join([]string{
		"",
		"── 2/10 Start ──────────────────────────────────────────────────────────────────",
		"   7.5s analyst services     ● running    task abc attempt 1",
		"   7.5s analyst a-folder-wi… │ hello",
		"   7.5s analyst x            ┃ oops",
		"   7.5s ✓ it holds: 3 of 3",
		"   7.5s ✗ it does not: 2 of 3",
		"",
	}, "\n"), b.String())
}

func TestViewFitsTheTerminal(t *testing.T) {
	v, b := testView(60, false)
	long := strings.Repeat("wide ", 100)
	v.say("%s", long)
	v.loud("%s", long)
	v.event("36", "analyst", "submitted", long)
	v.output("36", "analyst", stdout, long)
	v.check(Check{Claim: long, OK: true})
	v.block(long)
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 60, line)
	}
}

func TestViewNeverSendsWhatATaskWroteToTheTerminalAsItIs(t *testing.T) {
	v, b := testView(120, true)
	v.output("36", "x", stdout, "\x1b[2Jclear\x07 \xff bell\u009b")
	require.NotContains(t, b.String(), "\x1b[2J")
	require.NotContains(t, b.String(), "\x07")
	require.NotContains(t, b.String(), "\u009b")
	require.True(t, utf8.ValidString(b.String()))
	require.Contains(t, b.String(), "\x1b[36m", "its own colours it does send")
}

func TestNoColorWhereThereIsNoTerminal(t *testing.T) {
	var o Options
	o.ForWriter(&bytes.Buffer{}, nil)
	require.False(t, o.Color)
	require.Equal(t, plainWidth, o.Width())
}

func TestTable(t *testing.T) {
	require.Equal(t, []string{
		"TASK    MS  STATE",
		"a        7  complete",
		"größer  12  x y",
	}, table([]string{"TASK", ">MS", "STATE"}, [][]string{{"a", "7", "complete"}, {"größer", "12", "x\ny"}}))
}
