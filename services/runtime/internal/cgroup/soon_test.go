package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of the hierarchies' own word: the process is listed in the file by which it is kept where it is.
func TestOwn(t *testing.T) {
	tree := openTree(t)
	b, err := os.ReadFile(tree.own())
	require.NoError(t, err)
	require.Contains(t, strings.Fields(string(b)), strconv.Itoa(os.Getpid()))
}

// Many who expect a move at once share one that keeps the lock ready; with the last of them it ends, and nobody was moved.
func TestMoveSoon(t *testing.T) {
	tree := openTree(t)
	before, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	var all sync.WaitGroup
	first := tree.MoveSoon()
	ended := tree.mover.ended
	for range 50 {
		all.Go(func() { tree.MoveSoon()() })
	}
	all.Wait()
	require.Equal(t, ended, tree.mover.ended, "those who came later started another")
	select {
	case <-ended:
		t.Fatal("it ended before the first was done, or could not be begun")
	default:
	}
	first()
	first() // only the first call counts
	<-ended
	require.Zero(t, tree.mover.moves)
	tree.MoveSoon()() // it can be begun again
	after, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

// How long a process takes to be moved into a group, on a machine where none was moved for a while.
func BenchmarkMove(b *testing.B) {
	tree := openTree(b)
	for _, ready := range []bool{false, true} {
		b.Run("expected="+strconv.FormatBool(ready), func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				took += timeMove(b, tree, ready)
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "move-ms")
		})
	}
}

func timeMove(b *testing.B, tree *Tree, ready bool) time.Duration {
	dir := filepath.Join(tree.all[0], "weft-move-"+strconv.Itoa(os.Getpid()))
	require.NoError(b, os.Mkdir(dir, 0o755))
	child := exec.Command("sleep", "60")
	require.NoError(b, child.Start())
	time.Sleep(100 * time.Millisecond) // the lock rests
	if ready {
		defer tree.MoveSoon()()
		time.Sleep(40 * time.Millisecond) // what else there is to do for a container
	}
	at := time.Now()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(child.Process.Pid)), 0))
	took := time.Since(at)
	require.NoError(b, child.Process.Kill())
	_ = child.Wait()
	require.Eventually(b, func() bool { return os.Remove(dir) == nil }, 30*time.Second, time.Millisecond)
	return took
}
