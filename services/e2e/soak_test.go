package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

const (
	soakEnv       = "WEFT_SOAK_SANDBOXES" // how many; make soak SOAK=10000
	soakResultEnv = "WEFT_SOAK_RESULT"    // a file for what came of it, for tools/bench
	soakWait      = 3 * time.Minute       // for one sandbox, with the daemons killed meanwhile
)

// soaked is one sandbox's life, drawn before the start so that a seed tells all of it.
type soaked struct {
	name  string
	level string
	use   string // what is done in it
	kill  string // what is killed while it lives: weftd, containerd or nothing
}

// drawSoak draws n lives. Whatever the seed, both daemons are killed.
func drawSoak(r *rand.Rand, n int) []soaked {
	uses := []string{"echo", "echo", "echo", "files", "tree", "fill", "nothing"}
	all := make([]soaked, n)
	for i := range all {
		all[i] = soaked{name: fmt.Sprintf("soak-%d", i), level: workspace.LevelStandard, use: uses[r.IntN(len(uses))]}
		if r.IntN(12) == 0 {
			all[i].level = workspace.LevelHigh
		}
		switch r.IntN(60) {
		case 0:
			all[i].kill = "weftd"
		case 1:
			all[i].kill = "containerd"
		}
	}
	at := r.Perm(n)
	all[at[0]].kill, all[at[1]].kill, all[at[2]].level = "weftd", "containerd", workspace.LevelHigh
	return all
}

// soakScripts by use.
var soakScripts = map[string]string{
	"echo":  "echo done",
	"files": "for i in 1 2 3 4 5 6 7 8; do echo $i > /tmp/f$i; done; mkfifo /tmp/p; ln -s /nowhere /tmp/l; echo done",
	"tree":  "(setsid sleep 1000 &) ; (trap '' TERM; sleep 1000 &) ; echo done",
	"fill":  "head -c 4000000 /dev/zero > /tmp/big; head -c 500000 /dev/zero | tail -c 1 > /dev/null; echo done",
}

// TestSoak: sandboxes made, used and killed at random, some cold and some from a pool, on both levels, while weftd and containerd
// are killed now and then. In the end nothing is left of any.
func TestSoak(t *testing.T) {
	n, seed := 60, uint64(time.Now().UnixNano())
	for env, v := range map[string]func(uint64){soakEnv: func(x uint64) { n = int(x) }, seedEnv: func(x uint64) { seed = x }} {
		if s := os.Getenv(env); s != "" {
			x, err := strconv.ParseUint(s, 10, 63)
			require.NoError(t, err, env)
			v(x)
		}
	}
	require.GreaterOrEqual(t, n, 3)
	t.Logf("%s=%d runs this schedule again", seedEnv, seed)
	lives := drawSoak(rand.New(rand.NewPCG(seed, 0)), n)

	w := boot(t, "-slots", "16")
	c := w.as("alice")
	execute(t, c, warmUp(t, c), "", "true") // what every mesh has from its first sandbox on is there before
	clearSoak(t, c)
	before := settled(t, w)
	w.must("pool", "set", "base", "--min", "1", "--max", "3", "--shared")

	at := time.Now()
	s := &soak{t: t, w: w, c: c}
	s.run(lives)
	took := time.Since(at)
	require.NoError(t, errors.Join(s.errs...), "%s=%d runs this schedule again; weftd's log:\n%s", seedEnv, seed, tail(w.logs()))

	w.must("pool", "delete", "base", "--shared")
	clearSoak(t, c)
	after := settled(t, w)
	require.Equal(t, before, after, "left of %d sandboxes; %s=%d runs this schedule again", n, seedEnv, seed)
	t.Logf("%d sandboxes in %s, weftd killed %d times and containerd %d times: before %v, after %v", n, took.Round(time.Second), s.kills["weftd"], s.kills["containerd"], before, after)
	if file := os.Getenv(soakResultEnv); file != "" {
		b, err := json.Marshal(soakResult{n, took.Seconds(), s.kills, seed, before, after})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, b, 0o644))
	}
}

// soakResult is what a run leaves for tools/bench.
type soakResult struct {
	Sandboxes int            `json:"sandboxes"`
	Seconds   float64        `json:"seconds"`
	Kills     map[string]int `json:"kills"`
	Seed      uint64         `json:"seed"`
	Before    map[string]int `json:"before"`
	After     map[string]int `json:"after"`
}

type soak struct {
	t     *testing.T
	w     *world
	c     *client.Client
	kills map[string]int

	mu    sync.Mutex
	errs  []error
	epoch context.Context // of one weftd: what was asked of it gets no answer from the next
	over  context.CancelFunc
}

// newEpoch ends what was asked of the weftd that is gone.
func (s *soak) newEpoch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		s.over()
	}
	s.epoch, s.over = context.WithCancel(context.Background())
}

func (s *soak) now() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// run has several sandboxes live at a time; the daemons are killed by the one that hands out the lives.
func (s *soak) run(lives []soaked) {
	s.kills = map[string]int{"weftd": 0, "containerd": 0}
	s.newEpoch()
	defer func() { s.over() }()
	next := make(chan soaked)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for l := range next {
				if err := s.live(l); err != nil {
					s.mu.Lock()
					s.errs = append(s.errs, fmt.Errorf("%+v: %w", l, err))
					s.mu.Unlock()
				}
			}
		})
	}
	for _, l := range lives {
		next <- l
		switch l.kill {
		case "weftd":
			s.w.kill()
			s.w.start()
			s.newEpoch()
		case "containerd":
			s.killContainerd()
		default:
			continue
		}
		s.kills[l.kill]++
	}
	close(next)
	workers.Wait()
}

// killContainerd kills it, where it is not just being started.
func (s *soak) killContainerd() {
	for _, p := range processes(s.t, runDir(s.w.dir), s.w.dir+"/") {
		if f := strings.Fields(p); filepath.Base(f[2]) == "containerd" {
			pid, err := strconv.Atoi(f[1])
			require.NoError(s.t, err)
			_ = killProcess(pid)
			return
		}
	}
}

func killProcess(pid int) error {
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	return err
}

// live makes a sandbox, uses it, and kills it. Each step is repeated until it worked: what is asked again under the
// same name is the same sandbox.
func (s *soak) live(l soaked) error {
	limit, cancel := context.WithTimeout(context.Background(), soakWait)
	defer cancel()
	var box workspace.Sandbox
	err := s.again(limit, func(ctx context.Context) (err error) {
		box, err = s.c.CreateSandbox(ctx, workspace.SandboxCreate{Template: "base", Level: l.level, Files: "none", Claim: l.name})
		return err
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if script := soakScripts[l.use]; script != "" {
		err := s.again(limit, func(ctx context.Context) error {
			out, err := said(ctx, s.c, box.ID, "/bin/sh", "-c", script)
			if err == nil && strings.TrimSpace(out) != "done" {
				err = fmt.Errorf("it said %q", out)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("use sandbox %s: %w", box.ID, err)
		}
	}
	return s.kill(limit, box.ID)
}

func (s *soak) kill(limit context.Context, id string) error {
	err := s.again(limit, func(ctx context.Context) error {
		_, err := s.c.KillSandbox(ctx, id)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("kill sandbox %s: %w", id, err)
	}
	return nil
}

// again does f until it works, or gives the last error. Each try has its own deadline, and ends with the weftd that it asked.
func (s *soak) again(limit context.Context, f func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(limit, 45*time.Second)
		stop := context.AfterFunc(s.now(), cancel)
		err := f(ctx)
		stop()
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-limit.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// said runs a command and gives what it printed.
func said(ctx context.Context, c *client.Client, sandbox string, argv ...string) (string, error) {
	ses, err := c.Exec(ctx, sandbox, runtime.ExecRequest{Argv: argv})
	if err != nil {
		return "", err
	}
	defer func() { _ = ses.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = ses.Close() })
	defer stop()
	_ = ses.Channel(stream.Stdin).CloseWrite()
	out, err := io.ReadAll(ses.Channel(stream.Stdout))
	if err != nil {
		return "", err
	}
	var res runtime.ExecResult
	if err := ses.Result(ctx, &res); err != nil {
		return "", err
	}
	if res.Exit.Code != 0 {
		return string(out), fmt.Errorf("it ended with %+v %s", res.Exit, res.Message)
	}
	return string(out), nil
}

func warmUp(t *testing.T, c *client.Client) string {
	t.Helper()
	s, err := c.CreateSandbox(ctx(t, 90*time.Second), workspace.SandboxCreate{Template: "base", Files: "none"})
	require.NoError(t, err)
	return s.ID
}

// clearSoak kills what there still is: of a creation whose answer was lost, somebody else may have the name.
func clearSoak(t *testing.T, c *client.Client) {
	t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), soakWait)
	defer cancel()
	var live []string
	s := &soak{}
	s.newEpoch()
	defer s.over()
	err := s.again(limit, func(ctx context.Context) error {
		all, err := c.Sandboxes(ctx, 0)
		if err != nil {
			return err
		}
		live = nil
		for _, box := range all {
			if box.State != workspace.SandboxStopped {
				live = append(live, box.ID)
				_, err = c.KillSandbox(ctx, box.ID)
			}
		}
		if len(live) > 0 {
			return errors.Join(err, fmt.Errorf("%v live on", live))
		}
		return nil
	})
	require.NoError(t, err)
}

// settled counts by kind what there is on the machine of the mesh's sandboxes: nothing, as soon as that is so, or what
// there still is after long enough.
func settled(t *testing.T, w *world) map[string]int {
	t.Helper()
	var now map[string]int
	for end := time.Now().Add(soakWait); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		now = counted(t, w)
		sum := 0
		for _, n := range now {
			sum += n
		}
		if sum == 0 {
			return now
		}
	}
	t.Logf("still there:\n%s", strings.Join(lasting(t, w), "\n"))
	return now
}

// counted by kind: what the kernel and the disk say, and what containerd knows.
func counted(t *testing.T, w *world) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, kind := range []string{"process", "mount", "cgroup", "directory", "loop", "layer", "container", "task", "snapshot", "lease"} {
		n[kind] = 0
	}
	for _, l := range lasting(t, w) {
		n[strings.Fields(l)[0]]++
	}
	layers, err := filepath.Glob(filepath.Join(w.dir, "runtime", "layers", "*.img"))
	require.NoError(t, err)
	n["layer"] = len(layers)
	bin, err := toolchain.Find("ctr")
	if err != nil {
		return n // the kernel's tables tell
	}
	ctr := func(args ...string) []string {
		out, err := exec.Command(bin, append([]string{"--address", filepath.Join(runDir(w.dir), "c.sock"), "--namespace", "weft", "--timeout", "20s"}, args...)...).Output()
		if err != nil {
			return []string{"unknown"} // it is being started again: looked at once more
		}
		return strings.Fields(string(out))
	}
	n["container"], n["task"], n["lease"] = len(ctr("containers", "ls", "-q")), len(ctr("tasks", "ls", "-q")), len(ctr("leases", "ls", "-q"))
	for _, f := range slices.Collect(strings.Lines(strings.Join(ctr("snapshots", "ls"), "\n"))) {
		if strings.TrimSpace(f) == "Active" {
			n["snapshot"]++
		}
	}
	return n
}
