package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

func chunk(offset int64, data string) workspace.OutputChunk {
	return workspace.OutputChunk{Stream: stdout, Offset: offset, Data: []byte(data)}
}

func TestTranscriptPutsLinesTogether(t *testing.T) {
	var tr transcript
	require.Empty(t, tr.take(chunk(0, "hel")))
	require.Equal(t, []string{"hello", ""}, tr.take(chunk(3, "lo\n\nwor")))
	require.Equal(t, []string{"world"}, tr.take(chunk(10, "ld\n")))
	require.Equal(t, "hello\n\nworld\n", string(tr.whole))
	require.Empty(t, tr.wrong)
}

func TestTranscriptSeesGapsAndRepeats(t *testing.T) {
	for name, second := range map[string]workspace.OutputChunk{
		"gap": chunk(6, "x"), "repeat": chunk(3, "x"), "told": {Stream: stdout, Offset: 5, Gap: 2, Data: []byte("x")},
	} {
		var tr transcript
		tr.take(chunk(0, "hello"))
		tr.take(second)
		require.Len(t, tr.wrong, 1, name)
	}
}

const numbered = `1/3 read 1 of 9 files at 2026-01-31T08:00:00.100Z
something else
2/3 read 5 of 9 files at 2026-01-31T08:00:00.200Z
3/3 read 9 of 9 files at 2026-01-31T08:00:00.300Z
`

func TestSteps(t *testing.T) {
	ss := steps([]byte(numbered))
	require.Len(t, ss, 3)
	require.NoError(t, unbroken(ss))
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	require.Equal(t, 1, between(ss, at.Add(150*time.Millisecond), at.Add(250*time.Millisecond)))
	require.ErrorContains(t, unbroken(nil), "no numbered line")
	require.ErrorContains(t, unbroken(ss[:2]), "2 of 3")
	require.ErrorContains(t, unbroken(ss[1:]), "numbered 2")
	require.ErrorContains(t, unbroken([]step{ss[0], ss[0]}), "line 2 is numbered 1")
	for _, bad := range []string{"", "1/2 read", "1/2 read 1 of 2 files at yesterday", "x1/3 read 1 of 9 files at 2026-01-31T08:00:00.100Z"} {
		_, ok := parseStep(bad)
		require.False(t, ok, bad)
	}
}

func TestAttacks(t *testing.T) {
	a, ok := parseAttack(`{"attack": "sender", "what": "send a message as the planner", "refused": true, "code": "denied", "said": "Permissions Violation"}`)
	require.True(t, ok)
	require.True(t, a.held())
	require.Equal(t, "tries to send a message as the planner: refused (denied)", a.line())
	for name, bad := range map[string]Attack{
		"not refused":          {Kind: "sender", Code: "denied"},
		"no code":              {Kind: "sender", Refused: true},
		"the mesh was away":    {Kind: "sender", Refused: true, Code: "unavailable"},
		"one of two got in":    {Kind: "host", Refused: true, Code: "EACCES EIO"},
		"a kind that is none":  {Kind: "", Refused: true, Code: "denied"},
		"a defect of the test": {Kind: "secret", Refused: true, Code: "failed"},
	} {
		require.False(t, bad.held(), name)
	}
	require.True(t, Attack{Kind: "host", Refused: true, Code: "EACCES ENOENT"}.held())
	require.Equal(t, []string{"host", "network", "record", "secret", "workspace"}, untried([]Attack{a}))
	require.Contains(t, attackTable([]Attack{{Kind: "host", What: "read", Refused: true, Code: "denied"}})[1], "NOT REFUSED")
	_, ok = parseAttack(`{"other": 1}`)
	require.False(t, ok)
}

func TestTamperChangesOneByte(t *testing.T) {
	for _, body := range []string{`{"lines": 123}`, `{"lines": 9}`, `{}`} {
		forged := tamper([]byte(body))
		require.Len(t, forged, len(body))
		n := 0
		for i := range forged {
			if forged[i] != body[i] {
				n++
			}
		}
		require.Equal(t, 1, n, body)
		require.Contains(t, difference([]byte(body), forged), "instead of")
	}
}
