package spans

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func span(id, parent, name string, from, to int) Span {
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	return Span{ID: id, Parent: parent, Name: name, Start: at.Add(time.Duration(from) * time.Millisecond), End: at.Add(time.Duration(to) * time.Millisecond)}
}

func TestWaterfall(t *testing.T) {
	failed := span("4", "2", "prepare", 50, 60)
	failed.Failed = "exhausted"
	got := Waterfall([]Span{
		span("2", "1", "attempt", 20, 100), span("1", "remote", "submit", 0, 10), failed, span("3", "2", "claim", 20, 25),
	}, 40, 10)
	require.Equal(t, []string{
		"            │0          100 ms│",
		"submit      │█                │    10 ms",
		"  attempt   │   ██████████████│    80 ms",
		"    claim   │   █             │  5.00 ms",
		"    prepare │        ██       │    10 ms exhausted",
	}, got)
}

func TestWaterfallLeavesOutTheShortest(t *testing.T) {
	var ss []Span
	for i := range 50 {
		ss = append(ss, span("", "", "x", i, 2*i+1))
	}
	got := Waterfall(ss, 100, 10)
	require.Len(t, got, 1+10+1)
	require.Equal(t, "and 40 shorter ones", got[11])
	for _, l := range got {
		require.LessOrEqual(t, utf8.RuneCountInString(l), 100)
	}
}

func TestWaterfallOfStrangeTraces(t *testing.T) {
	require.Empty(t, Waterfall(nil, 80, 10))
	own := span("1", "1", "its own parent", 0, 0)
	require.Len(t, Waterfall([]Span{own}, 80, 10), 2)
	long := span("1", "", strings.Repeat("n", 200), 0, 10)
	for _, l := range Waterfall([]Span{long, span("2", "1", "\x1b[2J", 5, 4)}, 20, 10) {
		require.NotContains(t, l, "\x1b")
	}
}

func TestSubtree(t *testing.T) {
	ss := []Span{span("1", "", "pass", 0, 100), span("2", "1", "analyst", 10, 50), span("3", "2", "attempt", 20, 40), span("4", "1", "other", 60, 90)}
	require.Equal(t, []Span{ss[1], ss[2]}, Subtree(ss, "2"))
	require.Equal(t, ss, Subtree(ss, "nowhere"))
	loop := []Span{span("1", "2", "a", 0, 1), span("2", "1", "b", 0, 1)}
	require.LessOrEqual(t, len(Subtree(loop, "1")), 3)
}
