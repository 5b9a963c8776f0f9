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
	ids, errs := make([]string, tasks), make([]error, tasks)
	var handing sync.WaitGroup
	handing.Go(func() {
		for i, pause := range pauses {
			time.Sleep(pause) // the schedule, not a wait for something
			s := workspace.Submission{Agent: "worker", Env: map[string]string{"NAME": fmt.Sprintf("random-%d", i)}}
			ids[i], errs[i] = handIn(c, s, fmt.Sprintf("random-%d", i))
		}
	})
	for range kills {
		time.Sleep(time.Duration(200+r.IntN(1800)) * time.Millisecond)
		w.kill()
		w.start()
	}
	handing.Wait()
	for i, id := range ids {
		require.NoError(t, errs[i])
		ended(t, c, id)
		endsOnce(t, c, id, 0)
		worked(t, c, id, fmt.Sprintf("random-%d", i))
	}
	gone(t, w, c, ids)
	allLeasesGone(t, w, c)
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
