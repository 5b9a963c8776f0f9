package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/workspace"
)

// seedEnv runs a schedule again that failed before.
const seedEnv = "WEFT_E2E_SEED"

// TestKilledAtRandom hands in tasks while weftd is killed and started again, at moments that a seed decides.
func TestKilledAtRandom(t *testing.T) {
	const tasks, kills = 20, 4
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv(seedEnv); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d runs this schedule again", seedEnv, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	w := boot(t)
	c := w.as("alice")
	prepareCrashes(t, w, c)

	pauses := make([]time.Duration, tasks)
	for i := range pauses {
		pauses[i] = time.Duration(r.IntN(300)) * time.Millisecond
	}
	followed := make([]*follower, tasks)
	var clients sync.WaitGroup
	for i, pause := range pauses {
		name := fmt.Sprintf("random-%d", i)
		followed[i] = &follower{name: name, seen: map[string]string{}}
		if i > 0 {
			pause += pauses[i-1]
		}
		pauses[i] = pause
		clients.Go(func() {
			time.Sleep(pause) // the schedule, not a wait for something
			followed[i].run(c, workspace.Submission{Agent: "worker", Env: map[string]string{"NAME": name}})
		})
	}
	for range kills {
		time.Sleep(time.Duration(200+r.IntN(1800)) * time.Millisecond)
		w.kill()
		w.start()
	}
	clients.Wait()
	var ids []string
	for _, f := range followed {
		require.NoError(t, f.err, f.name)
		require.True(t, f.task.State.Final())
		ids = append(ids, f.task.ID)
		endsOnce(t, c, f.task.ID, 0)
		worked(t, c, f.task.ID, f.name)
		for _, st := range []string{"stdout", "stderr"} {
			require.Equal(t, output(t, c, f.task.ID, st), f.seen[fmt.Sprint(st, f.task.Attempt.Number)], "what was seen live of %s", f.name)
		}
	}
	gone(t, w, c, ids)
	allLeasesGone(t, w, c)
}

// follower submits a task and watches it, as a person would who knows nothing of the kills.
type follower struct {
	name string
	task workspace.Task
	seen map[string]string // by stream and attempt
	err  error
}

func (f *follower) run(c *client.Client, s workspace.Submission) {
	var id string
	if id, f.err = handIn(c, s, f.name); f.err != nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	f.task, f.err = c.Follow(limit, id, client.Following{Submitted: true, Output: func(o workspace.OutputChunk) error {
		k := fmt.Sprint(o.Stream, o.Attempt)
		if len(o.Data) > 0 && o.Offset != int64(len(f.seen[k])) {
			return fmt.Errorf("%s: got offset %d after %d bytes", k, o.Offset, len(f.seen[k]))
		}
		f.seen[k] += string(o.Data)
		return nil
	}})
}

// handIn submits until there is an answer: the key makes a repeat harmless.
func handIn(c *client.Client, s workspace.Submission, key string) (string, error) {
	limit, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		one, cancel := context.WithTimeout(limit, 5*time.Second)
		sub, err := c.Submit(one, s, key)
		cancel()
		if err == nil || limit.Err() != nil {
			return sub.Task, err
		}
		select {
		case <-limit.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
