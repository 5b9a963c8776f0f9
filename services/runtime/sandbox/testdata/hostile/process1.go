package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals sends every signal there is to process 1.
func signals([]string) []string {
	var r refusals
	for s := 1; s <= 64; s++ {
		r.add(strconv.Itoa(s), unix.Kill(1, syscall.Signal(s)))
	}
	return append(r, alive()...)
}

// threads sends signals to each thread of process 1.
func threads([]string) []string {
	var r refusals
	ids, _ := filepath.Glob("/proc/1/task/*")
	for _, id := range append(ids, "/proc/1/task/1") {
		tid, _ := strconv.Atoi(filepath.Base(id))
		for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGSTOP} {
			r.add(id, unix.Tgkill(1, tid, s))
		}
	}
	return append(r, alive()...)
}

// alive says that process 1 does not hang, is not traced and not stopped.
func alive() []string {
	b, err := os.ReadFile("/proc/1/status")
	if err != nil {
		return []string{word(err)}
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "State:"); ok && !strings.ContainsAny(strings.Fields(v)[0], "SRD") {
			return []string{"STATE-" + strings.TrimSpace(v)}
		}
		if v, ok := strings.CutPrefix(line, "TracerPid:"); ok && strings.TrimSpace(v) != "0" {
			return []string{"TRACED"}
		}
	}
	return []string{stays}
}

// pidfd takes hold of process 1 by a descriptor, to signal it, enter its namespaces, take its files.
func pidfd([]string) []string {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return []string{word(err)}
	}
	defer unix.Close(fd)
	var r refusals
	r.add("signal", unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0))
	for n := range 16 {
		got, err := unix.PidfdGetfd(fd, n, 0)
		if err == nil {
			_ = unix.Close(got)
		}
		r.add("file", err)
	}
	r.add("namespaces", unix.Setns(fd, unix.CLONE_NEWNET))
	return append(r, alive()...)
}

// peek reads and writes the memory of process 1.
func peek([]string) []string {
	var r refusals
	b := make([]byte, 16)
	local := []unix.Iovec{{Base: &b[0], Len: 16}}
	for _, at := range []uintptr{0x400000, 0xc000000000} {
		remote := []unix.RemoteIovec{{Base: at, Len: 16}}
		_, err := unix.ProcessVMReadv(1, local, remote, 0)
		r.add("read", err)
		_, err = unix.ProcessVMWritev(1, local, remote, 0)
		r.add("write", err)
	}
	for _, request := range []uintptr{unix.PTRACE_ATTACH, 0x4206 /* PTRACE_SEIZE */} {
		_, _, e := unix.Syscall6(unix.SYS_PTRACE, request, 1, 0, 0, 0, 0)
		if e == 0 {
			r.add("ptrace", nil)
		} else {
			r.add("ptrace", e)
		}
	}
	return append(r, alive()...)
}

// orphan makes processes whose parent dies with a wish for a signal, so that process 1 becomes their parent.
func orphan([]string) []string {
	for range 8 {
		c := exec.Command("/bin/sh", "-c", "(sleep 0.2 &) ; exit 0")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		_ = c.Run()
	}
	_, _, _ = unix.Syscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	return alive()
}

// zombies floods process 1 with dead children: each is orphaned and ends at once.
func zombies(args []string) []string {
	for range number(args[0]) {
		c := exec.Command("/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (true &); done")
		if err := c.Run(); err != nil {
			return []string{"FAILED " + err.Error()}
		}
	}
	// All are taken away, soon or a little later.
	for range 3000 {
		if len(dead()) == 0 {
			return alive()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return []string{fmt.Sprintf("ZOMBIES-%d", len(dead()))}
}

func dead() []string {
	var out []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		b, _ := os.ReadFile(s)
		if i := bytes.LastIndexByte(b, ')'); i > 0 && bytes.HasPrefix(b[i+1:], []byte(" Z 1 ")) {
			out = append(out, s)
		}
	}
	return out
}

// weigh changes what the kernel does for process 1: limits, priority, processors, memory.
func weigh([]string) []string {
	var r refusals
	one := unix.Rlimit{Cur: 1, Max: 1}
	for _, res := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_AS, unix.RLIMIT_CPU} {
		r.add("limit", unix.Prlimit(1, res, &one, nil))
	}
	r.add("priority", unix.Setpriority(unix.PRIO_PROCESS, 1, 19))
	var set unix.CPUSet
	set.Set(0)
	r.add("processors", unix.SchedSetaffinity(1, &set))
	_, _, e := unix.Syscall(unix.SYS_IOPRIO_SET, 1, 1, 3<<13)
	r.add("io", errno(e))
	param := struct{ Priority int32 }{}
	_, _, e = unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 1, 5, uintptr(unsafe.Pointer(&param))) // SCHED_IDLE
	r.add("scheduler", errno(e))
	return append(r, alive()...)
}

func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// strangers looks for processes of others: by their numbers on the host, given as arguments, and in /proc.
func strangers(args []string) []string {
	var r refusals
	for _, a := range args {
		pid := int(number(a))
		err := unix.Kill(pid, 0)
		if err == nil || err == unix.EPERM {
			// There is a process of that number here too: it is the sandbox's own if /proc shows it as such.
			b, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if rerr == nil && !bytes.Contains(b, []byte("containerd")) && !bytes.Contains(b, []byte("test")) {
				r = append(r, own)
				continue
			}
			err = nil
		}
		r.add(a, err)
	}
	return r
}

// bomb starts processes until it is told that there can be no more, and ends them.
func bomb([]string) []string {
	var pids []int
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}()
	for range 1 << 16 {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{})
		if err != nil {
			return []string{word(err)}
		}
		pids = append(pids, pid)
	}
	return []string{reached}
}
