package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
)

// show is one run of the demo.
type show struct {
	o   Options
	v   *view
	res *Result

	dir   string // of everything that is made: the daemon's data, its log, the copy of the code base
	src   string // the copy
	inv   inventory
	d     *daemon
	c     *client.Client
	w     *watch
	probe *probe
	vault *vault

	killed killing
	unlock func() // ends the watch and waits for it
}

// stage is a part of the show, with what it may take at most.
type stage struct {
	title string
	limit time.Duration
	run   func(ctx context.Context) error
}

// Run gives the show. The error says what kept it from going on; whether all that it claims held, the
// result says. When it returns the mesh is gone again, unless o.Keep is set.
func Run(ctx context.Context, o Options) (*Result, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &show{o: o, v: newView(o), res: &Result{Output: o.Output}, unlock: func() {}}
	if s.dir, err = tempDir(); err != nil {
		return nil, err
	}
	s.src = filepath.Join(s.dir, "src")
	s.d = &daemon{bin: o.Daemon, dataDir: filepath.Join(s.dir, "data"), log: filepath.Join(s.dir, "weftd.log"), args: o.Args, env: daemonEnv(o.Env)}
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	began := time.Now()
	err = s.perform(ctx)
	s.res.Took = time.Since(began)
	if err == nil {
		s.close()
	}
	return s.res, errors.Join(err, s.end(ctx, err))
}

// tempDir is short, because unix sockets lie in it, and their paths may have 107 bytes.
func tempDir() (string, error) {
	if dir, err := os.MkdirTemp("/tmp", "weft-demo-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "weft-demo-")
}

func (s *show) stages() []stage {
	all := []stage{
		{"Take a copy of the code base", 2 * time.Minute, s.takeCopy},
		{"Start a mesh: weftd -target=all", 2 * time.Minute, s.startMesh},
		{"Furnish a workspace", time.Minute, s.furnish},
		{"First pass: a planner, an analyst for each folder, a reviewer", 10 * time.Minute, s.firstPass},
		{"What the kill did", time.Minute, s.judgeKill},
		{"What the misbehaving analyst got", time.Minute, s.judgeAttacks},
		{"The first report", time.Minute, s.judgeFirst},
		{"Second pass: on a copy in which three files are edited", 10 * time.Minute, s.secondPass},
		{"All leases are asked of Vault", time.Minute, s.judgeLeases},
		{"What the audit left", 2 * time.Minute, s.collect},
	}
	if !s.o.Keep {
		all = append(all, stage{"Stop the mesh, and remove it", 3 * time.Minute, s.remove})
	}
	return all
}

// perform goes through the stages.
func (s *show) perform(ctx context.Context) error {
	all := s.stages()
	for i, st := range all {
		s.v.heading(i+1, len(all), st.title)
		limited, cancel := context.WithTimeout(ctx, st.limit)
		err := st.run(limited)
		late := errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case late && fault.CodeOf(err) != fault.Deadline:
			return fault.Wrap(err, fault.Deadline, "stage %d (%s) was not done within %s", i+1, st.title, st.limit)
		default:
			return fmt.Errorf("stage %d (%s): %w", i+1, st.title, err)
		}
	}
	return nil
}

// check notes a claim and shows whether it holds.
func (s *show) check(ok bool, claim, format string, args ...any) {
	c := Check{Claim: claim, OK: ok, Detail: fmt.Sprintf(format, args...)}
	s.res.Checks = append(s.res.Checks, c)
	s.v.check(c)
}

func (s *show) takeCopy(ctx context.Context) error {
	var err error
	if s.inv, err = take(ctx, s.o.Input, s.src, s.o.Output); err != nil {
		return err
	}
	s.res.Files, s.res.Lines = len(s.inv.Files), s.inv.Lines
	s.v.say("%s: %s, %d lines, %.1f MiB (by %s)", s.o.Input, plural(len(s.inv.Files), "file", "files"), s.inv.Lines, float64(s.inv.Bytes)/(1<<20), s.inv.How)
	if left := s.inv.leftOut(); left != "" {
		s.v.say("left out: %s", left)
	}
	_, err = choose(s.src, s.inv.Files) // better known now than after the first pass
	return err
}

func (s *show) startMesh(ctx context.Context) error {
	began := time.Now()
	if err := os.Mkdir(s.d.dataDir, 0o711); err != nil { // here already where weftd dies before it makes it
		return err
	}
	if err := s.d.start(ctx); err != nil {
		return err
	}
	s.v.say("weftd (pid %d) is ready after %.1f s at %s; its data is in %s", s.d.cmd.Process.Pid, time.Since(began).Seconds(), s.d.listen, s.d.dataDir)
	return nil
}

// keptRunning tells how to look around in the mesh that is left running, and how to end it.
func (s *show) keptRunning() {
	s.res.DataDir = s.d.dataDir
	s.v.block("", "The mesh goes on. To look around in it:",
		fmt.Sprintf("  weft context add demo --data-dir %s --in %s && weft --context demo task list", s.d.dataDir, audited), "To end it:",
		fmt.Sprintf("  kill %d; %s -data-dir %s -purge && rm -r %s", s.d.cmd.Process.Pid, s.d.bin, s.d.dataDir, s.dir))
}

// end removes what a show left that did not come to its end. After a failure the logs are kept.
func (s *show) end(ctx context.Context, failed error) error {
	if ctx.Err() == nil && (failed != nil || !s.res.OK()) {
		s.explain(failed)
	}
	if s.res.Removed {
		return nil
	}
	if s.o.Keep && failed == nil && ctx.Err() == nil {
		s.release()
		s.keptRunning()
		return nil
	}
	left, err := s.clear(ctx)
	if err == nil && len(left) > 0 {
		err = fault.New(fault.Internal, "not everything could be removed, %s stays: %s", s.dir, strings.Join(left, "; "))
	}
	return err
}

// release lets go of the mesh.
func (s *show) release() {
	s.unlock()
	s.unlock = func() {}
	if s.c != nil {
		s.c.Close()
	}
	if s.vault != nil {
		s.vault.close()
	}
	if s.probe != nil {
		s.probe.close()
	}
}

// clear stops the mesh and removes everything of it. It says what could not be removed; then the
// directory stays, because deleting below a mount deletes what is mounted.
func (s *show) clear(ctx context.Context) (left []string, err error) {
	s.release()
	if err := s.d.end(ctx); err != nil {
		return nil, fmt.Errorf("%s stays: %w", s.dir, err)
	}
	if left, err = leftovers(s.d.dataDir); err != nil || len(left) > 0 {
		return left, err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	s.res.Removed = true
	return nil, nil
}

// remove is the last stage: nothing may stay on the machine but the output directory.
func (s *show) remove(ctx context.Context) error {
	if !s.res.OK() { // before they are gone
		s.explain(nil)
	}
	left, err := s.clear(ctx)
	if err != nil {
		return err
	}
	s.check(len(left) == 0, "nothing is left on this machine: no process, mount or control group", "%s", strings.Join(left, "; "))
	return nil
}

// explain shows what helps to find out why the show failed: the end of weftd's log, and where all logs are.
func (s *show) explain(failed error) {
	if s.d.cmd == nil || s.res.Logs != "" {
		return
	}
	if failed != nil { // whole, however long: here nothing may be missing
		s.v.print("\nThe end of weftd's log:\n" + s.d.tail(25))
	}
	dir := filepath.Join(s.o.Output, "logs")
	if err := s.d.keepLogs(dir); err != nil {
		s.v.say("the logs could not be kept: %v", err)
		return
	}
	s.res.Logs = dir
	s.v.print("\nThe logs are in " + dir + "\n")
}
