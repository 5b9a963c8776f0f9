package containerd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	taskapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// Shim is the shim of a group of containers, as the Engine starts it: ahead, where it can. It belongs to nobody until it is
// taken, and then to those of one group only. containerd would start one when all else is there that a container needs; it is
// given the address of this one instead.
//
// A shim that serves nothing stays, until its first container comes; with the last one it ends. So who has taken one must
// Release it.
type Shim struct {
	e       *Engine
	runtime string
	group   string
	process proc.Process // zero where none could be started
	dir     string
	release sync.Once
}

// groupFlag is what a shim that the Engine started says it is, in place of the id of its first container.
const groupFlag = "group-"

// Group is what containers have as their group annotation that are to share this shim.
func (s *Shim) Group() string { return s.group }

// startShim starts one.
func (e *Engine) startShim(runtime string) *Shim {
	s := &Shim{e: e, runtime: runtime, group: groupFlag + schemas.NewID()}
	if program := e.shimProgram(runtime); program != "" && e.Private() {
		if err := s.start(program); err != nil {
			e.cfg.Log.Debug("no shim was started ahead", "runtime", runtime, "error", err)
		}
	}
	return s
}

// shimProgram is the program of a runtime's shim, where it is known to be one that takes a socket.
func (e *Engine) shimProgram(runtime string) string {
	e.shims.mu.Lock()
	defer e.shims.mu.Unlock()
	switch {
	case e.shims.alone[runtime]:
		return ""
	case runtime == Runc:
		return e.cfg.Shim
	case runtime == Runsc:
		return e.cfg.RunscShim
	}
	return ""
}

// socketOf is where the shim of a group listens: containerd's own rule.
func (e *Engine) socketOf(group string) string {
	sum := sha256.Sum256([]byte(filepath.Join(e.socket, Namespace, group)))
	return filepath.Join(e.cfg.RunDir, "shims", fmt.Sprintf("%x", sum))
}

// start runs the program as containerd's `start` does: with the socket at which it is to listen, in a directory of its own.
func (s *Shim) start(program string) error {
	e, path := s.e, s.e.socketOf(s.group)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	socket, err := l.File()
	if err == nil {
		defer socket.Close()
		err = errors.Join(os.Chmod(path, 0o600), s.furnish(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	cmd := exec.Command(program, "-namespace", Namespace, "-id", s.group, "-address", e.socket)
	cmd.Dir, cmd.ExtraFiles = s.dir, []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(e.daemon.environment(), "TTRPC_ADDRESS="+e.socket+".ttrpc", "GRPC_ADDRESS="+e.socket, "NAMESPACE="+Namespace, threads)
	e.shims.mu.Lock()
	defer e.shims.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(path), os.RemoveAll(s.dir))
	}
	// Like containerd it is our child until we end, and may outlive us. Somebody must take its exit status.
	go func() { _ = cmd.Wait() }()
	expendable(cmd.Process.Pid)
	found, err := proc.Identify(cmd.Process.Pid)
	if err != nil {
		return err // it has ended; containerd sees that nobody listens
	}
	s.process = found.Process
	e.shims.awaited[s.process] = true
	return nil
}

// threads is how many threads of a shim, and of the runc that it starts and that inherits it, compute at once: four as containerd
// would have it, but not more than there are processors, or starting runc takes longer.
var threads = fmt.Sprint("GOMAXPROCS=", min(4, goruntime.NumCPU()))

// furnish makes the shim's directory: where it writes what it has to say, and where it finds which socket to remove in the
// end. Both are open or read once it is up, and the directory goes; /proc/<pid>/fd/2 still tells what it said.
func (s *Shim) furnish(socket string) error {
	s.dir = filepath.Join(s.e.cfg.RunDir, "shim", s.group)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(s.dir, "log"), nil, 0o600),
		os.WriteFile(filepath.Join(s.dir, "address"), []byte("unix://"+socket), 0o600))
}

// expendable has the kernel take a process a little before us where memory is short, as containerd does with shims.
func expendable(pid int) {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	own, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(own+1, 1000))), 0) // any process may raise it
}

// Release says that nobody waits for the shim any more: init is process 1 of the container for which it was taken, or zero. A shim
// that serves nobody is ended then. Only the first call counts.
func (s *Shim) Release(init proc.Process) {
	s.release.Do(func() {
		if s.process.PID == 0 {
			return
		}
		s.e.shims.mu.Lock()
		delete(s.e.shims.awaited, s.process)
		s.e.shims.mu.Unlock()
		_ = os.RemoveAll(s.dir) // it has read what is there, or never will
		if !s.process.Alive() {
			return
		}
		if found, err := proc.Identify(init.PID); err == nil && found.Parent == s.process.PID {
			return
		}
		s.e.creating.Lock() // nobody is on the way into it
		defer s.e.creating.Unlock()
		if !s.e.isIdle(s.process) {
			return
		}
		s.e.endShim(s.process, s.group)
		if init.Alive() {
			s.e.ignored(s.runtime)
		}
	})
}

// endShim ends a shim that serves nothing, and waits until it has.
func (e *Engine) endShim(p proc.Process, group string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := errors.Join(p.Signal(syscall.SIGKILL), p.Wait(ctx), os.Remove(e.socketOf(group))); err != nil && !errors.Is(err, os.ErrNotExist) {
		e.cfg.Log.Warn("a shim that serves nothing does not end", "pid", p.PID, "error", err)
	}
}

// isIdle says whether a shim serves nobody.
func (e *Engine) isIdle(p proc.Process) bool {
	idle, err := e.idleShims()
	return err == nil && slices.Contains(idle, p)
}

// shareSandbox enters a sandbox in containerd's records, as its API calls what containers share a shim in. All name this one; which
// shim it is, each says for itself.
func (e *Engine) shareSandbox(ctx context.Context) bool {
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	_, err := e.client.SandboxStore().Create(ctx, sandbox.Sandbox{ID: Namespace, Runtime: sandbox.RuntimeOpts{Name: Runc}})
	return err == nil || errdefs.IsAlreadyExists(err)
}

// joins says whether containerd can be told which shim a container goes to. gVisor's shim speaks an older version of the protocol, which knows
// of no such thing: containerd starts its program, which finds the shim by the group.
func (s *Shim) joins(runtime string) bool {
	return s != nil && s.process.PID != 0 && s.e.endpoint && (runtime == "" || runtime == Runc)
}

// address has a task made in this shim. Versions of containerd before 2.2 read that from runc's options only.
func (s *Shim) address(req *taskapi.CreateTaskRequest) error {
	_, opts, err := s.e.runtime(s.runtime)
	if err != nil {
		return err
	}
	req.TaskApiAddress, req.TaskApiVersion = "ttrpc+unix://"+s.e.socketOf(s.group), 3
	if runc, ok := opts.(*options.Options); ok {
		//lint:ignore SA1019 see above
		runc.TaskApiAddress, runc.TaskApiVersion = req.TaskApiAddress, req.TaskApiVersion
		req.Options, err = typeurl.MarshalAnyToProto(runc)
	}
	return err
}
