package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
)

// node is the name of the show's only node.
const node = "demo"

// How long the daemon may take to be ready, to stop, and to remove what it leaves.
const (
	readyWithin = 90 * time.Second
	stopWithin  = 30 * time.Second
	purgeWithin = 60 * time.Second
)

// daemon is the show's weftd. It runs in a session of its own, so that Ctrl-C reaches only the show.
type daemon struct {
	bin, dataDir, log string
	args, env         []string
	listen            string // once it has run: where clients know it

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// start runs weftd and waits until every part of it serves.
func (d *daemon) start(ctx context.Context) error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	listen := d.listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	cmd := exec.Command(d.bin, append([]string{"-data-dir", d.dataDir, "-listen", listen, "-http", "127.0.0.1:0", "-node", node}, d.args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = d.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s can't be started", d.bin)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	d.cmd, d.done = cmd, done
	return d.ready(ctx)
}

func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := client.ReadDaemon(d.dataDir); err == nil && s.PID == d.cmd.Process.Pid {
			d.listen = strings.TrimPrefix(s.URL, "nats://")
			return nil
		}
		select {
		case <-d.done:
			return fault.New(fault.Unavailable, "weftd ended before it was ready (%s)", d.cmd.ProcessState)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fault.New(fault.Deadline, "weftd was not ready within %s", readyWithin)
			}
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// kill ends weftd as a crash does.
func (d *daemon) kill() error {
	err := d.cmd.Process.Signal(syscall.SIGKILL)
	<-d.done
	return err
}

// end stops weftd, and everything of its data directory that survives it. It has its own time, also
// when the show was interrupted.
func (d *daemon) end(ctx context.Context) error {
	if d.cmd == nil {
		return nil // it never ran
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(stopWithin):
		_ = d.kill()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeWithin)
	defer cancel()
	purge := exec.CommandContext(ctx, d.bin, "-data-dir", d.dataDir, "-purge")
	purge.Env = d.env
	purge.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := purge.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -data-dir %s -purge: %w: %s", d.bin, d.dataDir, err, bytes.TrimSpace(out))
	}
	return nil
}

// tail is the end of weftd's log, without control characters.
func (d *daemon) tail(lines int) string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	var out strings.Builder
	for _, l := range all[max(0, len(all)-lines):] {
		out.WriteString(clean(l) + "\n")
	}
	return out.String()
}

// keepLogs copies the logs of weftd and of what it runs into dir.
func (d *daemon) keepLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	found := []string{d.log}
	for _, pattern := range []string{"vault/server.log", "runtime/*.log", "runtime/*/*.log"} {
		more, _ := filepath.Glob(filepath.Join(d.dataDir, pattern))
		found = append(found, more...)
	}
	var errs []error
	for _, from := range found {
		name := filepath.Base(from)
		if rel, err := filepath.Rel(d.dataDir, from); err == nil && filepath.IsLocal(rel) {
			name = strings.ReplaceAll(rel, string(filepath.Separator), "-")
		}
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
