package bao

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
)

// start runs the server in a session and a network namespace of its own. alive is its lock: the child
// inherits the descriptor and holds it until it ends.
func (s *Server) start(ctx context.Context, alive *os.File) (*process, error) {
	if err := s.discardHalfInit(); err != nil {
		return nil, err
	}
	if s.kind == "" {
		kind, err := kindOf(ctx, s.cfg.Bin)
		if err != nil {
			return nil, err
		}
		s.kind = kind
	}
	if err := replaceFile(s.path(configFile), []byte(s.config(s.kind))); err != nil {
		return nil, err
	}
	out, err := s.openLog()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	child, err := inEmptyNetwork(func() (*os.Process, error) {
		return os.StartProcess(s.cfg.Bin, []string{s.cfg.Bin, "server", "-config=" + s.path(configFile)}, &os.ProcAttr{
			Dir: s.cfg.Dir,
			// Nothing of ours: a VAULT_ or BAO_ variable would override the configuration.
			Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + s.cfg.Dir, "TZ=UTC"},
			Files: []*os.File{null, out, out, alive},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "OpenBao (%s) could not be started; it needs root for a network namespace of its own, else set VAULT_ADDR to a Vault that runs", s.cfg.Bin)
	}
	pid := child.Pid
	// A core dump would hold the keys.
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	id, err := identify(pid)
	if err == nil {
		err = s.remember(id)
	}
	var p *process
	if err == nil {
		p, err = adopt(id)
	}
	if err != nil {
		_ = child.Kill()
		_, _ = child.Wait()
		return nil, fault.Wrap(err, fault.Unavailable, "OpenBao ended at once; see %s", s.path(logFile))
	}
	_ = child.Release() // the watcher reaps it
	return p, nil
}

// inEmptyNetwork calls start on a thread that has a new network namespace with loopback only; the child
// inherits it. The thread is thrown away.
func inEmptyNetwork(start func() (*os.Process, error)) (child *os.Process, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with this goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make a network namespace: %w", err)
			return
		}
		if err = loopbackUp(); err != nil {
			err = fmt.Errorf("bring up loopback: %w", err)
			return
		}
		child, err = start()
	}()
	<-done
	return child, err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// kinds of server binary. They differ in two lines of configuration.
const (
	openBao   = "OpenBao"
	hashiCorp = "Vault"
)

func kindOf(ctx context.Context, bin string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "version").Output()
	if err != nil {
		return "", fault.Wrap(err, fault.Unavailable, "%s does not run; `make setup` builds OpenBao", bin)
	}
	if strings.HasPrefix(string(out), openBao) {
		return openBao, nil
	}
	if strings.HasPrefix(string(out), hashiCorp) {
		return hashiCorp, nil
	}
	return "", fault.New(fault.Unavailable, "%s is neither OpenBao nor Vault; `make setup` builds OpenBao", bin)
}

// config is the whole configuration of the server. Paths are quoted as HCL strings.
func (s *Server) config(kind string) string {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p("# Written by weftd at every start of the server; changes are lost.")
	p("ui = false")
	p("log_level = \"info\"")
	p("api_addr = \"http://127.0.0.1:8200\"")
	p("cluster_addr = \"https://127.0.0.1:8201\"")
	p("default_lease_ttl = \"60s\"")
	p("max_lease_ttl = \"768h\"")
	p("storage \"raft\" {\n  path = %s\n  node_id = \"weft\"\n  performance_multiplier = \"1\"\n}", hcl(s.path(raftDir)))
	p("listener \"unix\" {\n  address = %s\n  socket_mode = \"600\"\n  socket_user = \"%d\"\n  socket_group = \"%d\"\n}", hcl(s.path(socketFile)), os.Getuid(), os.Getgid())
	p("# Raft demands it. It is the loopback of a network namespace that only this process is in.")
	p("listener \"tcp\" {\n  address = \"127.0.0.1:8200\"\n  cluster_address = \"127.0.0.1:8201\"\n  tls_disable = true\n}")
	if kind == openBao {
		// Relative to the working directory: it is kept in the storage, too, where another path than the
		// configuration's stops the server, and a data directory may be moved.
		p("audit \"file\" \"weft\" {\n  options = {\n    file_path = %s\n  }\n}", hcl(auditFile))
	} else {
		p("disable_mlock = true") // raft's memory-mapped storage and mlock do not go together
	}
	return b.String()
}

// hcl quotes s as an HCL string; "${" would begin an interpolation.
func hcl(s string) string {
	return strings.ReplaceAll(fmt.Sprintf("%q", s), "${", "$${")
}
