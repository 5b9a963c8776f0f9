package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// idMap is one line of a user namespace's map.
type idMap = syscall.SysProcIDMap

// withNamespaces runs do with the /proc directory of a process that is in new namespaces (flags) and
// has not run a single instruction of its program: it is traced and stops in exec. It is gone when
// withNamespaces returns; what do pinned or opened of its namespaces stays.
func withNamespaces(flags uintptr, uids, gids []idMap, do func(procDir string) error) error {
	// The thread that starts a traced process is its tracer, and must live as long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Ptrace: true, Pdeathsig: syscall.SIGKILL, Cloneflags: flags,
		UidMappings: uids, GidMappings: gids, GidMappingsEnableSetgroups: true,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	err := do(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	return errors.Join(err, reap(cmd))
}

// reap kills the process of withNamespaces and takes its exit status.
func reap(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	// Its stop at exec may still be waiting to be told; Wait would take that for its end.
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			return errors.Join(err, cmd.Process.Release())
		}
	}
}

// pinNamespaces makes the user and the network namespace of a sandbox and pins them at dir/user and
// dir/net. The network namespace belongs to the user namespace and has nothing but a loopback
// interface, which is up.
func pinNamespaces(dir string, r idRange) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ids := []idMap{{ContainerID: 0, HostID: int(r.first()), Size: rangeSize}}
	return withNamespaces(syscall.CLONE_NEWUSER|syscall.CLONE_NEWNET, ids, ids, func(procDir string) error {
		for _, ns := range []string{"user", "net"} {
			target := filepath.Join(dir, ns)
			if err := os.WriteFile(target, nil, 0o400); err != nil {
				return err
			}
			if err := unix.Mount(filepath.Join(procDir, "ns", ns), target, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("pin %s namespace: %w", ns, err)
			}
		}
		return inNetwork(filepath.Join(dir, "net"), loopbackUp)
	})
}

// inNetwork runs do on a thread that is in the network namespace at path.
func inNetwork(path string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, and with it the foreign namespace, ends with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network namespace: %w", err)
			}
			return do()
		}()
	}()
	return <-done
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
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	return nil
}
