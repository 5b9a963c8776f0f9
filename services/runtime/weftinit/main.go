package weftinit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/app/calm"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
	"github.com/weftmesh/weft/services/runtime/weftinit/seccomp"
)

// config is what the node told process 1 by its arguments.
type config struct {
	sandbox  string
	run      string // directory with the socket and the key
	forwards []forwardSpec
	memory   int    // bytes that all rings together may grow to
	pids     int64  // the sandbox's limit, 0: look at the cgroup, if it can be seen
	spares   int    // threads to be made ahead
	seccomp  string // profile of system calls
	root     bool   // payload may be uid 0
	caps     uint64 // that it has then
	late     lateSpec
}

type forwardSpec struct{ name, addr string }

// Names inside the run directory.
const (
	SocketName = "sock"
	KeyName    = "key"
)

// Main is weft-init: it gives the exit code.
func Main(args []string, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "weft-init:", err)
		return 2
	}
	if err := run(cfg); err != nil {
		fmt.Fprintln(stderr, "weft-init:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{}
	fs := flag.NewFlagSet("weft-init", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&cfg.sandbox, "sandbox", "", "the sandbox's id")
	fs.StringVar(&cfg.run, "run", "/.weft/run", "directory with the node's socket and the key")
	fs.IntVar(&cfg.memory, "rings", 64<<20, "bytes that all output rings together may grow to")
	fs.IntVar(&cfg.spares, "spare-threads", spareThreads, "how many threads to make ahead")
	fs.Int64Var(&cfg.pids, "pids", 0, "how many processes and threads the sandbox may have")
	fs.StringVar(&cfg.seccomp, "seccomp", "base", "profile of system calls")
	fs.BoolVar(&cfg.root, "root", false, "payload may be uid 0")
	fs.Uint64Var(&cfg.caps, "caps", 0, "bits of the capabilities that uid 0 has then")
	fs.Func("forward", "name=address to listen at for the node (repeatable)", func(s string) error {
		name, addr, ok := strings.Cut(s, "=")
		if !ok || name == "" || addr == "" {
			return errors.New("want name=address")
		}
		cfg.forwards = append(cfg.forwards, forwardSpec{name, addr})
		return nil
	})
	fs.Func("late", "from=to: directory that is shown at another when the node says so", cfg.late.set)
	if len(args) > 0 {
		args = args[1:]
	}
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	if !seccomp.Known(cfg.seccomp) {
		return cfg, fmt.Errorf("no profile %q of system calls", cfg.seccomp)
	}
	return cfg, errors.Join(schemas.CheckID("sandbox", cfg.sandbox), cfg.checkCaps())
}

// run is process 1's life. Its order matters: all that needs privileges comes first, then they go,
// then the filter comes, and only then the node is dialled, so that nothing runs before.
func run(cfg config) error {
	runtime.GOMAXPROCS(processors)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(48 << 20)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	key, err := readKey(cfg.run + "/" + KeyName)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		// Outside a container, as a child of a test: orphans come to us all the same.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
		}
	}
	_ = calm.Monitor(calm.Slack) // where the kernel can, and the node gave what it takes
	if err := loopbackUp(); err != nil {
		return err
	}
	if _, err := devNull(); err != nil {
		return fmt.Errorf("/dev/null: %w", err)
	}
	s := newSupervisor(cfg)
	if err := s.listenForwards(cfg.forwards); err != nil {
		return err
	}
	if err := s.makeBinder(cfg.late); err != nil {
		return err
	}
	if err := reservePIDs(cfg.pids); err != nil {
		return fmt.Errorf("RLIMIT_NPROC: %w", err)
	}
	ending := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if cfg.root {
		ending = []os.Signal{unix.SIGKILL} // payload could send the others
		if err := surviveSignals(); err != nil {
			return err
		}
		if cfg.run, err = hideSocket(cfg.run); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	defer stop()
	if err := harden(cfg); err != nil {
		return err
	}
	s.threads.Go(func() { makeThreads(cfg.spares) }) // while the node is dialled
	go s.reaper.run()
	s.serve(ctx, cfg.run+"/"+SocketName, cfg.sandbox, key)
	s.killAll(0)
	return nil
}

func readKey(path string) (key wire.Key, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("the node's key: %w", err)
	}
	if len(b) != len(key) {
		return key, fmt.Errorf("the node's key has %d bytes, not %d", len(b), len(key))
	}
	copy(key[:], b)
	clear(b)
	return key, nil
}
