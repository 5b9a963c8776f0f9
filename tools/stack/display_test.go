package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func statuses(stage provision.Stage) []provision.Status {
	result := func(o provision.Outcome) provision.Status {
		return provision.Status{Stage: stage, State: provision.Done, Result: provision.Result{Stage: stage, Outcome: o, Where: "/usr/bin/tool (1.2.3)", Took: 72 * time.Second, Err: errors.New("it needs packages")}}
	}
	return []provision.Status{
		{Stage: stage, State: provision.Waiting, Why: "for a free core"},
		{Stage: stage, State: provision.Running, Started: time.Now().Add(-65 * time.Second), Last: func() string { return strings.Repeat("example.com/a/very/long/package/path", 9) }},
		result(provision.Made), result(provision.Cached), result(provision.Installed), result(provision.Failed), result(provision.Skipped),
	}
}

var tool = provision.Stage{Name: "tool", What: "Tool 1.2.3, a server with quite a long description indeed", Expect: 5 * time.Minute, Files: []string{"bin/tool"}}

func TestTheTerminalNeverWraps(t *testing.T) {
	for _, width := range []int{20, 40, 80, 81, 200} {
		display := newTerminal(nil)
		display.colour = false
		for _, s := range statuses(tool) {
			display.Changed(s)
			line := display.line(tool, width)
			require.Less(t, utf8.RuneCountInString(line), width, line)
			require.NotContains(t, line, "\n")
		}
	}
}

func TestTheTerminalSaysWhatIsGoingOn(t *testing.T) {
	display := newTerminal(nil)
	display.colour = false
	want := []string{"waits for a free core", "1:05 of about 5:00", "built in 1:12 min", "already there", "uses the installed /usr/bin/tool (1.2.3)", "failed after 1:12 min", "not tried, it needs packages"}
	for i, s := range statuses(tool) {
		display.Changed(s)
		require.Contains(t, display.line(tool, 140), want[i])
	}
	stopped := statuses(tool)[5]
	stopped.Result.Err = fmt.Errorf("go: %w", context.Canceled)
	display.Changed(stopped)
	require.Contains(t, display.line(tool, 140), "interrupted")
	display.colour = true
	require.Contains(t, display.line(tool, 140), "\x1b[31m✗\x1b[0m")
}

func TestPlainWritesALineForEachStartAndEnd(t *testing.T) {
	var out bytes.Buffer
	display := newPlain(&out)
	display.begin("Getting it", nil)
	for _, s := range statuses(tool)[:3] {
		display.Changed(s)
	}
	display.end()
	require.Equal(t, "Getting it\n"+
		"  start tool        "+tool.What+", about 5:00 min\n"+
		"  ok    tool        "+tool.What+": built in 1:12 min\n", out.String())
}

func TestReport(t *testing.T) {
	results := []provision.Result{
		{Stage: provision.Stage{Name: "a", What: "A", Version: "1"}, Outcome: provision.Cached, Where: "/cache/bin/a", Size: 12_340_000},
		{Stage: provision.Stage{Name: "b", What: "B", Version: "2"}},
		{Stage: provision.Stage{Name: "c", What: "C"}, Outcome: provision.Failed, Err: errors.New("no"), Log: "/cache/log/c.log", Took: time.Second},
	}
	var out bytes.Buffer
	report(&out, false, results)
	require.Contains(t, out.String(), "a     1        12.3 MB  /cache/bin/a")
	require.Contains(t, out.String(), "missing; `make setup` gets it")

	out.Reset()
	report(&out, true, results)
	decoder := json.NewDecoder(&out)
	var outcomes []string
	for decoder.More() {
		var l line
		require.NoError(t, decoder.Decode(&l))
		outcomes = append(outcomes, l.Outcome)
	}
	require.Equal(t, []string{"cached", "missing", "failed"}, outcomes)
}

func TestShorten(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"two words too long", 9, "two word…"},
		{"example.com/a/package", 9, "…/package"},
		{"tab\tand\x1b[31mcolour", 30, "tab and [31mcolour"},
		{"äöü äöü", 4, "äöü…"},
		{"x", 0, ""},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, shorten(tt.text, tt.width))
	}
}
