package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// meshBenchmarks need a whole mesh: weftd with all its services, as `make build` made it.
var meshBenchmarks = []Benchmark{
	{"exec_running", "a command in a running sandbox through the mesh, beside containerd's exec and a bare fork and exec", execRunning},
	{"sandbox_cold", "request to the first command's output, beside ctr run and runc run", sandboxCold},
	{"task_overhead", "submission to final state, without the sandbox's start and the command", taskOverhead},
	{"task_rate", "no-op tasks, sustained", taskRate},
	{"snapshot_incremental", "10,000 files after 10 changed, beside git add and git commit", snapshotIncremental},
	{"daemon_idle_rss", "weftd with all services and nothing to do", idleRSS},
}

// world is a running weftd and its user.
type world struct {
	dir    string
	cmd    *exec.Cmd
	client *client.Client
}

// mesh gives the whole mesh, started when first asked for.
func (e *Env) mesh(ctx context.Context) (*world, error) {
	if e.world != nil {
		return e.world, nil
	}
	bin := filepath.Join(e.root, "bin", "weftd")
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%w; run make build", err)
	}
	dir, err := os.MkdirTemp("", "weft-b-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, cmd: exec.Command(bin, "-data-dir", dir, "-listen", "127.0.0.1:0", "-http", "127.0.0.1:0", "-node", "bench", "-slots", "160", "-log-level", "warn")}
	log, err := os.Create(filepath.Join(dir, "weftd.log"))
	if err != nil {
		return nil, err
	}
	w.cmd.Stdout, w.cmd.Stderr = log, log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	e.undo = append(e.undo, func() {
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		_ = w.cmd.Wait()
		_ = log.Close()
		if out, err := exec.Command(bin, "-data-dir", dir, "-purge").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "purge: %v\n%s", err, out)
		}
		_ = os.RemoveAll(dir)
	})
	for limit := time.Now().Add(time.Minute); ; {
		d, err := client.ReadDaemon(dir)
		if err == nil && d.PID == w.cmd.Process.Pid {
			break
		}
		if time.Now().After(limit) {
			b, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("weftd was not ready within a minute:\n%s", b)
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.client, err = client.Dial(ctx, client.Context{DataDir: dir, Tenant: "default", Workspace: "default", Principal: "bench"})
	if err != nil {
		return nil, err
	}
	e.undo = append(e.undo, w.client.Close)
	e.world = w
	return w, nil
}

// run runs a command in a sandbox and gives what it printed.
func (w *world) run(ctx context.Context, sandbox string, argv ...string) (string, error) {
	s, err := w.client.Exec(ctx, sandbox, runtime.ExecRequest{Argv: argv})
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	_ = s.Channel(stream.Stdin).CloseWrite()
	out, err := io.ReadAll(s.Channel(stream.Stdout))
	if err != nil {
		return "", err
	}
	var r runtime.ExecResult
	if err := s.Result(ctx, &r); err != nil {
		return "", err
	}
	if r.Exit.Code != 0 {
		return "", fmt.Errorf("%v ended with %d", argv, r.Exit.Code)
	}
	return string(out), nil
}

func execRunning(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := w.client.CreateSandbox(ctx, workspace.SandboxCreate{Template: "base", Files: "none"})
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = w.client.KillSandbox(context.WithoutCancel(ctx), sb.ID) }()
	ctr, err := e.ctr(w)
	if err != nil {
		return nil, err
	}
	n := 0
	ts, err := each(ctx, rounds(300),
		func() error { _, err := w.run(ctx, sb.ID, "/bin/true"); return err },
		func() error { return exec.CommandContext(ctx, "/bin/true").Run() })
	if err != nil {
		return nil, err
	}
	ctrs, err := each(ctx, 20, func() error {
		n++
		return quiet(ctr(ctx, "task", "exec", "--exec-id", "bench-"+strconv.Itoa(n), sb.ID, "/bin/true"))
	})
	if err != nil {
		return nil, err
	}
	r := newResult("exec_running", "ms", ts[0])
	return []Result{r.aimed("p50 ≤ 1.8, p99 ≤ 5", r.Median <= 1.8 && r.P99 <= 5).
		beside("fork and exec on the host", ts[1]).beside("ctr task exec (whole process)", ctrs[0])}, nil
}

// quiet runs a command and gives its output in the error.
func quiet(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, out)
	}
	return nil
}

func sandboxCold(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	ctr, err := e.ctr(w)
	if err != nil {
		return nil, err
	}
	n := 0
	ours := func() error {
		sb, err := w.client.CreateSandbox(ctx, workspace.SandboxCreate{Template: "base", Files: "none"})
		if err != nil {
			return err
		}
		out, err := w.run(ctx, sb.ID, "/bin/echo", "hi")
		if err == nil && out != "hi\n" {
			err = fmt.Errorf("it said %q", out)
		}
		e.later = append(e.later, sb.ID)
		return err
	}
	if err := ours(); err != nil { // the image is imported and unpacked by it
		return nil, err
	}
	images, err := ctr(ctx, "images", "ls", "-q").Output()
	if err != nil {
		return nil, err
	}
	image, _, _ := strings.Cut(string(images), "\n") // of the mesh itself
	theirs := func() error {
		n++
		return quiet(ctr(ctx, "run", "--rm", image, "bench-run-"+strconv.Itoa(n), "/bin/echo", "hi"))
	}
	var a, b []float64
	for range 12 { // in turns, with the clean-up of ours outside of the clock
		ts, err := each1(ctx, ours)
		if err != nil {
			return nil, err
		}
		a = append(a, ts)
		for _, id := range e.later {
			if _, err := w.client.KillSandbox(ctx, id); err != nil && !fault.Is(err, fault.NotFound) {
				return nil, err
			}
		}
		e.later = nil
		if ts, err = each1(ctx, theirs); err != nil {
			return nil, err
		}
		b = append(b, ts)
	}
	r := newResult("sandbox_cold", "ms", a[2:]).median(60).beside("ctr run --rm", b[2:])
	return []Result{r.besideTools(ctx, e, "runc", "podman", "docker")}, nil
}

func each1(ctx context.Context, f func() error) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	t := time.Now()
	err := f()
	return float64(time.Since(t).Nanoseconds()) / 1e6, err
}

// noop is the least that a task can do.
var noop = workspace.Submission{Template: "base", Command: []string{"/bin/true"}}

// taskOverhead subtracts from a task's whole time what its record says of the sandbox's start; the command itself takes about 1 ms.
func taskOverhead(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	var whole, over []float64
	for i := range 43 {
		start := time.Now()
		t, err := w.client.Run(ctx, noop, "", client.Following{})
		if err != nil {
			return nil, err
		}
		all := time.Since(start)
		if t.State != workspace.Complete || t.Attempt.CommandAt == nil || t.Attempt.StartedAt == nil {
			return nil, fmt.Errorf("task %s: %s %+v", t.ID, t.State, t.Fault)
		}
		if i < warmups {
			continue
		}
		whole = append(whole, ms(all))
		over = append(over, ms(all)-ms(t.Attempt.CommandAt.Sub(*t.Attempt.StartedAt)))
	}
	return []Result{
		newResult("task_overhead", "ms", over).aim("p50 ≤ 15"),
		newResult("task_whole", "ms", whole),
	}, nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func taskRate(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	const n = 100
	var rates []float64
	for range 3 {
		start := time.Now()
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for range n {
			g.Go(func() error {
				t, err := w.client.Run(gctx, noop, "", client.Following{})
				if err == nil && t.State != workspace.Complete {
					err = fmt.Errorf("task %s: %s %+v", t.ID, t.State, t.Fault)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		rates = append(rates, n/time.Since(start).Seconds())
	}
	return []Result{newResult("task_rate", "task/s", rates)}, nil
}

func snapshotIncremental(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := makeTree(filepath.Join(e.dir, "tree"), 10_000)
	if err != nil {
		return nil, err
	}
	if err := quiet(git(tree, "init", "-q")); err != nil {
		return nil, err
	}
	if err := commit(tree); err != nil {
		return nil, err
	}
	c, err := w.client.In("snapshots")
	if err != nil {
		return nil, err
	}
	if _, err := c.Workspaces().Put(ctx, workspace.Workspace{Name: "snapshots"}, 0); err != nil {
		return nil, err
	}
	if _, err := c.PutFile(ctx, filesystem.PutRequest{Tar: true, Replace: true}, tarOf(tree, nil)); err != nil {
		return nil, err
	}
	round := 0
	var a, b []float64
	for range 12 {
		round++
		changed, err := change(tree, round, 10)
		if err != nil {
			return nil, err
		}
		t, err := each1(ctx, func() error {
			_, err := c.PutFile(ctx, filesystem.PutRequest{Tar: true}, tarOf(tree, changed))
			if err != nil {
				return err
			}
			_, err = c.Snapshot(ctx, "round")
			return err
		})
		if err != nil {
			return nil, err
		}
		a = append(a, t)
		if t, err = each1(ctx, func() error { return commit(tree) }); err != nil {
			return nil, err
		}
		b = append(b, t)
	}
	return []Result{newResult("snapshot_incremental", "ms", a[2:]).aim("≤ 150").beside("git add -A && git commit", b[2:])}, nil
}

func idleRSS(ctx context.Context, e *Env) ([]Result, error) {
	w, err := e.mesh(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(5 * time.Second) // what was just done settles
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return nil, err
			}
			return []Result{newResult("daemon_idle_rss", "MB", []float64{kb / 1e3})}, nil
		}
	}
	return nil, fmt.Errorf("no VmRSS of process %d", w.cmd.Process.Pid)
}
