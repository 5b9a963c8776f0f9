package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/workspace"
)

// sandboxBenchmarks are of single sandboxes and of warm pools, through the mesh, as any client has them.
var sandboxBenchmarks = []Benchmark{
	{"claim_warm", "request to the first command's output, from a warm pool", claimWarm},
	{"claim_warm_high", "the same at level high", claimWarmHigh},
	{"claim_burst", "100 claims at once, each to its first command's output", claimBurst},
	{"sandbox_cold_high", "request to the first command's output at level high, beside runsc run", sandboxColdHigh},
	{"exec_running_high", "a command in a running sandbox of level high", execRunningHigh},
	{"stdout_mesh", "1 GiB of a command's output through the mesh", stdoutMesh},
	{"stdout_node", "output at the node, without the mesh", stdoutNode},
	{"file_write", "100 MiB written to a sandbox", fileWrite},
	{"file_read", "100 MiB read from a sandbox", fileRead},
	{"pause_resume", "a sandbox frozen and thawed", pauseResume},
	{"fork", "one sandbox into another, with 1,000 changed files", forkSandbox},
	{"idle_sandbox", "memory of the machine for each idle warm sandbox, and how many 24 GiB hold", idleStandard},
	{"idle_sandbox_high", "the same at level high", idleHigh},
	{"refill_cpu", "CPU time of the whole machine for each member of a pool that is made", refillStandard},
	{"refill_cpu_high", "the same at level high", refillHigh},
	{"soak", "what the last make soak SOAK=n has left", soakResults},
}

// operator connects to the mesh as its operator.
func (w *world) operator(ctx context.Context) (*client.Operator, error) {
	return client.DialOperator(ctx, client.Context{DataDir: w.dir})
}

// warm keeps n sandboxes of the template base ready, for every tenant, and takes them away afterwards. ready waits until so
// many are; between two calls of it there are each claims.
func (w *world) warm(ctx context.Context, level string, n, each int, do func(ready func(int) error) error) error {
	o, err := w.operator(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	if _, err := o.Pools().Put(ctx, workspace.Pool{Name: "base", Level: level, Min: n, Max: n}); err != nil {
		return err
	}
	state := func() (workspace.PoolState, error) {
		st, err := o.Pools().Get(ctx, "base")
		if err != nil || len(st.Nodes) == 0 {
			return workspace.PoolState{}, err
		}
		return st.Nodes[0], nil
	}
	var asked, calls uint64 // at the first call, and since
	ready := func(want int) error {
		for {
			st, err := state()
			if err != nil {
				return err
			}
			// What the manager knows is as old as the last heartbeat: it must know of the claims since.
			if runs := st.Claims + st.Misses; st.Ready >= want && st.Making == 0 && (calls == 0 || runs >= asked+calls*uint64(each)) {
				if calls == 0 {
					asked = runs
				}
				calls++
				return nil
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("%d of %d members are ready: %w %v", st.Ready, want, err, st.Fault)
			}
		}
	}
	err = do(ready)
	if derr := o.Pools().Delete(context.WithoutCancel(ctx), "base"); err == nil {
		err = derr
	}
	if err == nil {
		err = pause(ctx, poolGone)
	}
	return err
}

// poolGone is how long after its deletion a pool's members are there at most: three heartbeats say that nobody wants them,
// and then they go. The next pool of the same kind would have them.
const poolGone = 12 * time.Second

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// first makes a sandbox and takes its first command's output, and notes it to be killed outside of the clock.
func (e *Env) first(ctx context.Context, w *world, r workspace.SandboxCreate) error {
	r.Template, r.Files = "base", "none"
	sb, err := w.client.CreateSandbox(ctx, r)
	if err != nil {
		return err
	}
	e.later = append(e.later, sb.ID)
	out, err := w.run(ctx, sb.ID, "/bin/echo", "hi")
	if err == nil && out != "hi\n" {
		err = fmt.Errorf("it said %q", out)
	}
	return err
}

// killLater kills what first has noted.
func (e *Env) killLater(ctx context.Context, w *world) {
	for _, id := range e.later {
		_, _ = w.client.KillSandbox(ctx, id)
	}
	e.later = nil
}

func claimWarm(ctx context.Context, e *Env) ([]Result, error) {
	ts, err := claims(ctx, e, workspace.LevelStandard, rounds(40))
	return one(newResult("claim_warm", "ms", ts).median(10), err)
}

func claimWarmHigh(ctx context.Context, e *Env) ([]Result, error) {
	ts, err := claims(ctx, e, workspace.LevelHigh, rounds(20))
	return one(newResult("claim_warm_high", "ms", ts).median(20), err)
}

// claims times n of them one after the other, each from a pool that is full again.
func claims(ctx context.Context, e *Env, level string, n int) ([]float64, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	var out []float64
	err = w.warm(ctx, level, 4, 1, func(ready func(int) error) error {
		for i := range n + warmups {
			if err := ready(4); err != nil {
				return err
			}
			t, err := each1(ctx, func() error { return e.first(ctx, w, workspace.SandboxCreate{Level: level}) })
			if err != nil {
				return err
			}
			if i >= warmups {
				out = append(out, t)
			}
			e.killLater(ctx, w)
		}
		return nil
	})
	return out, err
}

// burst is how many claims come at once.
const burst = 100

func claimBurst(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	wide, err := w.wide(ctx)
	if err != nil {
		return nil, err
	}
	defer wide.client.Close()
	var all []float64
	err = w.warm(ctx, workspace.LevelStandard, burst, burst, func(ready func(int) error) error {
		for range rounds(3) {
			if err := ready(burst); err != nil {
				return err
			}
			ts, ids, err := atOnce(ctx, wide)
			all = append(all, ts...)
			e.later = ids
			e.killLater(ctx, wide)
			if err != nil {
				return err
			}
		}
		return nil
	})
	r := newResult("claim_burst", "ms", all)
	return one(r.aimed("p95 ≤ 300", r.P95 <= 300), err)
}

func atOnce(ctx context.Context, w *world) (ts []float64, ids []string, err error) {
	var mu sync.Mutex
	var g errgroup.Group
	start := time.Now()
	for range burst {
		g.Go(func() error {
			sb, err := w.client.CreateSandbox(ctx, workspace.SandboxCreate{Template: "base", Files: "none"})
			if err != nil {
				return err
			}
			_, err = w.run(ctx, sb.ID, "/bin/echo", "hi")
			mu.Lock()
			defer mu.Unlock()
			ts, ids = append(ts, ms(time.Since(start))), append(ids, sb.ID)
			return err
		})
	}
	return ts, ids, g.Wait()
}

// wide is a user of a tenant that may have many sandboxes.
func (w *world) wide(ctx context.Context) (*world, error) {
	o, err := w.operator(ctx)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	quota := workspace.Quota{Sandboxes: 4 * burst}
	if _, err := o.CreateTenant(ctx, workspace.Tenant{Name: "wide", Quota: quota}); err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, client.Context{DataDir: w.dir, Tenant: "wide", Workspace: "wide", Principal: "bench"})
	if err != nil {
		return nil, err
	}
	if _, err := c.Workspaces().Put(ctx, workspace.Workspace{Name: "wide", Quota: quota}, 0); err != nil {
		c.Close()
		return nil, err
	}
	return &world{dir: w.dir, cmd: w.cmd, client: c}, nil
}

func sandboxColdHigh(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	var ts []float64
	for i := range rounds(12) + 2 {
		t, err := each1(ctx, func() error { return e.first(ctx, w, workspace.SandboxCreate{Level: workspace.LevelHigh}) })
		e.killLater(ctx, w)
		if err != nil {
			return nil, err
		}
		if i >= 2 {
			ts = append(ts, t)
		}
	}
	r := newResult("sandbox_cold_high", "ms", ts).median(180)
	return []Result{r.besideTools(ctx, e, "runsc")}, nil
}

func execRunningHigh(ctx context.Context, e *Env) ([]Result, error) {
	var ts [][]float64
	err := e.inSandbox(ctx, workspace.SandboxCreate{Level: workspace.LevelHigh}, func(w *world, id string) (err error) {
		ts, err = each(ctx, rounds(100), func() error { _, err := w.run(ctx, id, "/bin/true"); return err })
		return err
	})
	if err != nil {
		return nil, err
	}
	return []Result{newResult("exec_running_high", "ms", ts[0]).median(12)}, nil
}

// inSandbox does something in a sandbox of the template base, or of another.
func (e *Env) inSandbox(ctx context.Context, r workspace.SandboxCreate, do func(w *world, id string) error) error {
	w, err := e.mesh(ctx)
	if err != nil {
		return err
	}
	if r.Template == "" {
		r.Template = "base"
	}
	r.Files = "none"
	sb, err := w.client.CreateSandbox(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _, _ = w.client.KillSandbox(context.WithoutCancel(ctx), sb.ID) }()
	return do(w, sb.ID)
}

func pauseResume(ctx context.Context, e *Env) ([]Result, error) {
	var ts [][]float64
	err := e.inSandbox(ctx, workspace.SandboxCreate{}, func(w *world, id string) (err error) {
		ts, err = each(ctx, rounds(30), func() error {
			if _, err := w.client.PauseSandbox(ctx, id); err != nil {
				return err
			}
			_, err := w.client.ResumeSandbox(ctx, id)
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return []Result{newResult("pause_resume", "ms", ts[0])}, nil
}

func forkSandbox(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	o, err := w.operator(ctx)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	shared, err := o.Templates(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range shared {
		if t.Name == "base" {
			t.Name, t.Version, t.WritableRoot = "forked", 0, true
			if _, err := w.client.Templates().Put(ctx, t, 0); err != nil {
				return nil, err
			}
		}
	}
	var ts []float64
	err = e.inSandbox(ctx, workspace.SandboxCreate{Template: "forked"}, func(w *world, id string) error {
		if _, err := w.run(ctx, id, "/bin/sh", "-c", "mkdir /tmp/many && cd /tmp/many && i=0; while [ $i -lt 1000 ]; do echo $i > f$i; i=$((i+1)); done"); err != nil {
			return err
		}
		for i := range rounds(12) + 2 {
			var made []workspace.Sandbox
			t, err := each1(ctx, func() (err error) { made, err = w.client.ForkSandbox(ctx, id, 1); return err })
			if err != nil {
				return err
			}
			for _, m := range made {
				out, err := w.run(ctx, m.ID, "/bin/sh", "-c", "ls /tmp/many | wc -l")
				if err != nil || strings.TrimSpace(out) != "1000" {
					return fmt.Errorf("the fork has %q files: %v", out, err)
				}
				_, _ = w.client.KillSandbox(ctx, m.ID)
			}
			if i >= 2 {
				ts = append(ts, t)
			}
		}
		return nil
	})
	return one(newResult("fork", "ms", ts).median(150), err)
}

func one(r Result, err error) ([]Result, error) {
	if err != nil {
		return nil, err
	}
	return []Result{r}, nil
}

// zeros is a reader of n bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(b []byte) (int, error) { clear(b); return len(b), nil }
