package weftinit

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
	"github.com/weftmesh/weft/services/runtime/weftinit/trampoline"
)

func TestReadProcess(t *testing.T) {
	c := exec.Command("sleep", "60")
	require.NoError(t, c.Start())
	p, ok := readProcess(c.Process.Pid)
	require.True(t, ok)
	require.Equal(t, os.Getpid(), p.parent)
	require.False(t, p.zombie)
	require.Positive(t, p.start)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	_, ok = readProcess(c.Process.Pid)
	require.False(t, ok)

	all, _ := readProcesses()
	require.Contains(t, all, os.Getpid())
}

func TestHasGroup(t *testing.T) {
	p := processStat{groups: []byte("\t1 61184 22 ")}
	require.True(t, p.hasGroup(61184))
	require.True(t, p.hasGroup(1))
	require.False(t, p.hasGroup(6118))
	require.False(t, p.hasGroup(2))
}

func TestTreeByDescent(t *testing.T) {
	all := map[int]processStat{
		10: {pid: 10, parent: 5, session: 10},
		11: {pid: 11, parent: 10, session: 10},
		12: {pid: 12, parent: 11, session: 12}, // a session of its own
		13: {pid: 13, parent: os.Getpid(), session: 10},
		14: {pid: 14, parent: os.Getpid(), session: 14}, // somebody else's
		15: {pid: 15, parent: 16, session: 15},          // a circle, as two looks may make one
		16: {pid: 16, parent: 15, session: 15},
	}
	tr := tree{root: 10}
	for pid, want := range map[int]bool{10: true, 11: true, 12: true, 13: true, 14: false, 15: false} {
		require.Equal(t, want, tr.has(all[pid], all), pid)
	}
	require.True(t, tree{root: 1, all: true}.has(all[14], all))
	require.False(t, tree{root: 10, tag: 61184}.has(all[11], all), "where there are tags nothing else counts")
}

func TestTags(t *testing.T) {
	tags := &tags{on: true, next: wire.TagCount}
	seen := map[uint32]bool{}
	for range wire.TagCount {
		tag, err := tags.take()
		require.NoError(t, err)
		require.False(t, seen[tag])
		seen[tag] = true
	}
	tags.inUse = map[uint32]bool{}
	again, err := tags.take()
	require.NoError(t, err)
	require.True(t, seen[again])
	tag, err := newTags().take()
	require.NoError(t, err)
	require.Zero(t, tag, "none outside a sandbox: the ids may be somebody else's")
}

func TestLimitsToSet(t *testing.T) {
	have := inherited(unix.RLIMIT_NOFILE)
	require.Empty(t, limitsToSet([]wire.Rlimit{{Name: "nofile", Soft: have.Soft, Hard: have.Hard}}), "in force already")
	got := limitsToSet([]wire.Rlimit{{Name: "nofile", Soft: have.Soft - 1, Hard: 1<<64 - 1}})
	require.Equal(t, []trampoline.Limit{{Number: 7, Soft: have.Soft - 1, Hard: have.Hard}}, got)
}

func TestClipArgs(t *testing.T) {
	require.Equal(t, wire.Texts("a", "b"), clipArgs(wire.Texts("a", "b")))
	long := make([]wire.Text, 10_000)
	for i := range long {
		long[i] = "argument"
	}
	size := 0
	for _, a := range clipArgs(long) {
		size += len(a)
	}
	require.Less(t, size, 2<<10)
}
