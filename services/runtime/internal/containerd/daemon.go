package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// configuration of a private daemon. What a node does not use is off: the CRI, NRI, tracing, and metrics of control groups.
var configuration = template.Must(template.New("containerd").Parse(`version = 3
root = {{printf "%q" .Root}}
state = {{printf "%q" .State}}
temp = {{printf "%q" .Temp}}
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
  "io.containerd.monitor.task.v1.cgroups",
  "io.containerd.podsandbox.controller.v1.podsandbox",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = {{printf "%q" .Socket}}

[ttrpc]
  address = {{printf "%q" (print .Socket ".ttrpc")}}

[plugins.'io.containerd.shim.v1.manager']
  socket_dir = {{printf "%q" .Shims}}

[plugins.'io.containerd.internal.v1.opt']
  path = {{printf "%q" .Opt}}
`))

// maxLog is the size beyond which a daemon's log is put aside when it starts. One earlier is kept.
const maxLog = 16 << 20

// daemon is a private containerd and the watch over it.
type daemon struct {
	cfg  Config
	log  *slog.Logger
	done chan struct{}
	quit context.CancelFunc
}

func (d *daemon) socket() string  { return filepath.Join(d.cfg.RunDir, "c.sock") }
func (d *daemon) pidFile() string { return filepath.Join(d.cfg.RunDir, "containerd.pid") }

// openDaemon finds the daemon of the directory or starts one, waits until it listens, and watches it.
func openDaemon(ctx context.Context, cfg Config) (*daemon, error) {
	d := &daemon{cfg: cfg, log: cfg.Log.With("part", "containerd"), done: make(chan struct{})}
	if n := len(d.socket()) + len(".ttrpc"); n > 107 {
		return nil, fault.New(fault.Invalid, "the run directory %s is too long for a unix socket; choose a shorter one", cfg.RunDir)
	}
	// A sandbox's root user is nobody on the host, and still walks to its root file system on its own feet.
	for dir, mode := range map[string]os.FileMode{cfg.Dir: 0o711, cfg.RunDir: 0o711, filepath.Join(cfg.RunDir, "shims"): 0o700} {
		if err := errors.Join(os.MkdirAll(dir, mode), os.Chmod(dir, mode)); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "the engine's directory %s cannot be made", dir)
		}
	}
	p, err := d.ensure(ctx)
	if err != nil {
		return nil, err
	}
	watch, quit := context.WithCancel(context.WithoutCancel(ctx))
	d.quit = quit
	go d.watch(watch, p)
	return d, nil
}

// ensure gives the running daemon, or starts one and waits until it listens. Only one process at a
// time does that for a directory.
func (d *daemon) ensure(ctx context.Context) (proc.Process, error) {
	unlock, err := lockFile(ctx, filepath.Join(d.cfg.RunDir, "containerd.lock"))
	if err != nil {
		return proc.Process{}, err
	}
	defer unlock()
	if p, err := proc.Read(d.pidFile()); err == nil && p.Alive() {
		d.log.Info("found the private containerd", "pid", p.PID)
		return p, d.listening(ctx, p)
	}
	p, err := d.start()
	if err != nil {
		return proc.Process{}, fault.Wrap(err, fault.Unavailable, "the private containerd does not start; see %s", d.logPath())
	}
	if err := d.listening(ctx, p); err != nil {
		return proc.Process{}, errors.Join(err, p.Signal(syscall.SIGKILL))
	}
	d.log.Info("started a private containerd", "pid", p.PID, "socket", d.socket())
	return p, nil
}

func (d *daemon) logPath() string { return filepath.Join(d.cfg.Dir, "containerd.log") }

// start writes the configuration and starts the daemon in a session of its own.
func (d *daemon) start() (proc.Process, error) {
	path := filepath.Join(d.cfg.Dir, "config.toml")
	if err := d.writeConfiguration(path); err != nil {
		return proc.Process{}, err
	}
	if st, err := os.Stat(d.logPath()); err == nil && st.Size() > maxLog {
		if err := os.Rename(d.logPath(), d.logPath()+".1"); err != nil {
			return proc.Process{}, err
		}
	}
	out, err := os.OpenFile(d.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return proc.Process{}, err
	}
	defer out.Close()
	cmd := exec.Command(d.cfg.Containerd, "--config", path, "--log-level", "warn")
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.cfg.Dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = d.environment()
	if err := cmd.Start(); err != nil {
		return proc.Process{}, err
	}
	found, err := proc.Identify(cmd.Process.Pid)
	p := found.Process
	if err == nil {
		err = proc.Write(d.pidFile(), p)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return proc.Process{}, err
	}
	// It is our child until we end; somebody must take its exit status. This goroutine lasts as
	// long as the daemon, by intention beyond Close.
	go func() { _ = cmd.Wait() }()
	return p, nil
}

// environment is what the daemon and its shims see: no variable of ours that could hold a secret.
func (d *daemon) environment() []string {
	return []string{"PATH=" + strings.Join(d.cfg.path(), ":"), "TMPDIR=" + filepath.Join(d.cfg.Dir, "tmp")}
}

func (d *daemon) writeConfiguration(path string) error {
	tmp := filepath.Join(d.cfg.Dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	var b bytes.Buffer
	err := configuration.Execute(&b, struct{ Root, State, Temp, Socket, Shims, Opt string }{
		filepath.Join(d.cfg.Dir, "root"), filepath.Join(d.cfg.RunDir, "state"), tmp, d.socket(),
		filepath.Join(d.cfg.RunDir, "shims"), filepath.Join(d.cfg.Dir, "opt"),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// listening waits until the daemon's socket takes a connection, or the daemon dies.
func (d *daemon) listening(ctx context.Context, p proc.Process) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("unix", d.socket())
		if err == nil {
			return c.Close()
		}
		if !p.Alive() {
			return fault.New(fault.Unavailable, "the private containerd ended at its start; see %s", d.logPath())
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Unavailable, "the private containerd does not listen; see %s", d.logPath())
		case <-tick.C:
		}
	}
}

// watch starts the daemon again whenever it dies, with a growing pause between starts that fail.
func (d *daemon) watch(ctx context.Context, p proc.Process) {
	defer close(d.done)
	const first, last = 50 * time.Millisecond, 10 * time.Second
	pause := first
	for ctx.Err() == nil {
		err := p.Wait(ctx)
		if err == nil {
			d.log.Warn("the private containerd died; starting it again", "pid", p.PID)
			var next proc.Process
			if next, err = d.ensure(ctx); err == nil {
				p, pause = next, first
				continue
			}
		}
		if ctx.Err() != nil {
			return // closed
		}
		d.log.Error("the private containerd cannot be kept running", "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, last)
	}
}

// close ends the watch. The daemon goes on.
func (d *daemon) close() {
	d.quit()
	<-d.done
}

// stop ends the daemon: asked first, then forced.
func (d *daemon) stop(ctx context.Context) error {
	p, err := proc.Read(d.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.Signal(sig); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = p.Wait(wait)
		cancel()
		if err == nil {
			return os.Remove(d.pidFile())
		}
	}
	return fmt.Errorf("containerd, process %d, does not end: %w", p.PID, err)
}

// lockFile takes an exclusive lock on path, which the kernel gives back when the process ends.
func lockFile(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}
