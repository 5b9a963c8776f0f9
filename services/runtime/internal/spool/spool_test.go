package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, dir string, limit int64) *Spool {
	t.Helper()
	s, err := Open(dir, limit)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func read(t *testing.T, s *Spool, st Stream, from int64) string {
	t.Helper()
	b := make([]byte, 1<<16)
	n, err := s.Read(st, from, b)
	require.NoError(t, err)
	return string(b[:n])
}

func TestSpool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "task", "1")
	s := open(t, dir, 1000)
	changed := s.Changed()
	require.NoError(t, s.Append(Stdout, []byte("hello "), 6))
	<-changed
	require.NoError(t, s.Append(Stderr, []byte("oops"), 4))
	require.NoError(t, s.Append(Stdout, []byte("***"), 15), "shorter than its source")
	require.NoError(t, s.Append(Stdout, nil, 20))
	require.Equal(t, "hello ***", read(t, s, Stdout, 0))
	require.Equal(t, "***", read(t, s, Stdout, 6))
	require.Empty(t, read(t, s, Stdout, 100))
	require.Empty(t, read(t, s, Stdout, -1))
	require.Equal(t, Position{Source: 20, Size: 9}, s.Position(Stdout))
	require.NoError(t, s.SetPublished(Stdout, 6))
	require.NoError(t, s.End(Stderr))
	require.NoError(t, s.Sync())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Append(Stdout, []byte("x"), 21), os.ErrClosed)

	s = open(t, dir, 1000)
	require.Equal(t, Position{Source: 20, Size: 9}, s.Position(Stdout))
	require.Equal(t, Position{Source: 4, Size: 4, Ended: true}, s.Position(Stderr))
	require.EqualValues(t, 6, s.Published(Stdout))
	require.Equal(t, "hello ***", read(t, s, Stdout, 0))
}

// Killed after the bytes and before the count: they are cut off, and come again from the source.
func TestUncountedBytesComeAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1000)
	require.NoError(t, s.Append(Stdout, []byte("one"), 3))
	require.NoError(t, s.SetPublished(Stdout, 3))
	require.NoError(t, s.Close())
	f, err := os.OpenFile(filepath.Join(dir, "stdout"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("two, never counted")
	require.NoError(t, err)
	require.NoError(t, f.Close())

	s = open(t, dir, 1000)
	require.Equal(t, Position{Source: 3, Size: 3}, s.Position(Stdout))
	require.NoError(t, s.Append(Stdout, []byte("two"), 6))
	require.Equal(t, "onetwo", read(t, s, Stdout, 0))

	// Positions that were cut short by a full disk count as none.
	require.NoError(t, s.Close())
	require.NoError(t, os.Truncate(filepath.Join(dir, "positions"), 10))
	s = open(t, dir, 1000)
	require.Equal(t, Position{}, s.Position(Stdout))
	require.EqualValues(t, 0, s.Published(Stdout))
}

func TestTheLimitIsOfStdoutAndStderrTogether(t *testing.T) {
	s := open(t, t.TempDir(), 10)
	require.NoError(t, s.Append(Stdout, []byte("1234567"), 7))
	require.False(t, s.Truncated())
	require.NoError(t, s.Append(Stderr, []byte("12345"), 5))
	require.True(t, s.Truncated())
	require.NoError(t, s.Append(Stdout, bytes.Repeat([]byte("x"), 1<<20), 1<<20))
	require.NoError(t, s.Append(Log, []byte("output was truncated"), 0))
	require.Equal(t, "1234567", read(t, s, Stdout, 0))
	require.Equal(t, "123", read(t, s, Stderr, 0))
	require.Equal(t, "output was truncated", read(t, s, Log, 0))
	require.EqualValues(t, 1<<20, s.Position(Stdout).Source, "the source is taken in all the same")
}
