package merge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	const base = "1\n2\n3\n4\n5\n6\n"
	for name, c := range map[string]struct {
		base, ours, theirs, want string
		ok                       bool
	}{
		"apart":               {base, "one\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\nsix\n", "one\n2\n3\n4\n5\nsix\n", true},
		"same change":         {base, "1\n2\nx\n4\n5\n6\n", "1\n2\nx\n4\n5\n6\n", "1\n2\nx\n4\n5\n6\n", true},
		"same line":           {base, "1\n2\nx\n4\n5\n6\n", "1\n2\ny\n4\n5\n6\n", "", false},
		"neighbouring lines":  {base, "1\n2\nx\n4\n5\n6\n", "1\n2\n3\ny\n5\n6\n", "", false},
		"insert at one place": {base, "1\na\n2\n3\n4\n5\n6\n", "1\nb\n2\n3\n4\n5\n6\n", "", false},
		"both append":         {base, base + "a\n", base + "b\n", "", false},
		"remove and edit":     {base, "1\n4\n5\n6\n", "1\n2\n3\n4\n5\nsix\n", "1\n4\n5\nsix\n", true},
		"no newline at end":   {"a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC", true},
		"newline added":       {"a\nb\nc", "a\nb\nc\n", "A\nb\nc", "A\nb\nc\n", true},
		"CRLF":                {"a\r\nb\r\nc\r\n", "x\r\nb\r\nc\r\n", "a\r\nb\r\ny\r\n", "x\r\nb\r\ny\r\n", true},
		"both emptied":        {base, "", "", "", true},
		"one emptied":         {base, "", base, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Text(c.base, c.ours, c.theirs)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.want, got)
		})
	}
}

func TestIsText(t *testing.T) {
	require.True(t, IsText(nil))
	require.True(t, IsText([]byte("ü\n")))
	require.False(t, IsText([]byte("a\x00b")))
	require.False(t, IsText([]byte{0xff}))
	require.False(t, IsText(make([]byte, MaxText+1)))
}

// small makes texts of few different lines, so that edits meet.
func small(b []byte) string {
	out := ""
	for _, c := range b {
		out += string('a' + rune(c%5))
		if c%11 != 0 {
			out += "\n"
		}
	}
	return out
}

func FuzzText(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, []byte{1, 3, 4}, []byte{1, 2, 3, 9})
	f.Fuzz(func(t *testing.T, x, y, z []byte) {
		base, ours, theirs := small(x), small(y), small(z)
		for _, side := range []string{ours, theirs} {
			got, ok := Text(base, side, base)
			require.True(t, ok)
			require.Equal(t, side, got, "one side untouched")
			got, ok = Text(base, base, side)
			require.True(t, ok)
			require.Equal(t, side, got, "other side untouched")
			got, ok = Text(base, side, side)
			require.True(t, ok)
			require.Equal(t, side, got, "both the same")
		}
		a, okA := Text(base, ours, theirs)
		b, okB := Text(base, theirs, ours)
		require.Equal(t, okA, okB, "symmetric")
		require.Equal(t, a, b, "symmetric")
	})
}
