package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dial connects to each address, as tcp:host:port, udp:host:port, unix:path or unix:@abstract.
func dial(addrs []string) []string {
	var r refusals
	for _, a := range addrs {
		network, to, _ := strings.Cut(a, ":")
		c, err := net.DialTimeout(network, to, 5*time.Second)
		if err == nil && network == "udp" {
			_, err = c.Write([]byte("anybody?")) // connecting alone says nothing
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				_, err = c.Read(make([]byte, 1))
			}
		}
		if err == nil {
			_ = c.Close()
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r = append(r, "silence")
			continue
		}
		r.add(a, err)
	}
	return r
}

// packets opens sockets that see or make packets of their own, of each kind.
func packets([]string) []string {
	var r refusals
	for _, s := range [][3]int{
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{unix.AF_PACKET, unix.SOCK_RAW, 0x0300}, {unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300}, {unix.AF_XDP, unix.SOCK_RAW, 0},
	} {
		fd, err := unix.Socket(s[0], s[1], s[2])
		if err == nil {
			_ = unix.Close(fd)
		}
		r.add("socket", err)
	}
	return r
}

// sharedMemory looks for the segments of System V with these keys, and for any at all.
func sharedMemory(args []string) []string {
	var r refusals
	for _, a := range args {
		_, err := unix.SysvShmGet(int(number(a)), 4096, 0)
		r.add("segment", err)
	}
	return r
}

// messageQueue opens a POSIX queue by its name.
func messageQueue(names []string) []string {
	var r refusals
	for _, n := range names {
		p, _ := syscall.BytePtrFromString(n)
		fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), unix.O_RDWR, 0, 0, 0, 0)
		if e == 0 {
			_ = unix.Close(int(fd))
		}
		r.add(n, errno(e))
	}
	return r
}

// runOne0 runs a program with one argument and gives the words it says.
func runOne0(path, verb string) string {
	out, err := exec.Command(path, verb).Output()
	if err != nil {
		return word(err)
	}
	return strings.TrimSpace(string(out))
}

// expected is who the payload is to be: nobody without capabilities, or root inside with those that the test names.
func expected() (uid int, caps uint64) {
	allowed, root := os.LookupEnv("HOSTILE_ROOT")
	if !root {
		return 1000, 0
	}
	caps, _ = strconv.ParseUint(allowed, 16, 64)
	return 0, caps
}

// become says who it is: somebody who may more than the payload, or the payload itself.
func become([]string) []string {
	uid, caps := expected()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return []string{word(err)}
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if set, err := strconv.ParseUint(v, 16, 64); strings.HasPrefix(k, "Cap") && (err != nil || set&^caps != 0) {
			return []string{reached + ":" + k}
		}
	}
	if os.Geteuid() != uid || os.Getegid() != uid || os.Getuid() != uid {
		return []string{reached + ":uid"}
	}
	return []string{own}
}

// gain asks for more than it has: ids, groups, capabilities, and the end of what holds it down.
func gain([]string) []string {
	runtime.LockOSThread()
	var r refusals
	for name, f := range map[string]func() error{
		"uid": func() error { return raw(unix.SYS_SETUID, 0) }, "gid": func() error { return raw(unix.SYS_SETGID, 0) },
		"resuid": func() error { return raw(unix.SYS_SETRESUID, 0, 0, 0) }, "resgid": func() error { return raw(unix.SYS_SETRESGID, 0, 0, 0) },
		"groups": func() error { g := [1]uint32{0}; return raw(unix.SYS_SETGROUPS, 1, pointer(&g)) },
		"capset": func() error {
			h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			d := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0), Inheritable: ^uint32(0)}}
			return unix.Capset(&h, &d[0])
		},
		"ambient": func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
		},
		"securebits":    func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, 1, 0, 0, 0) },
		"privileges":    func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) },
		"no filter":     func() error { return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_DISABLED, 0, 0, 0) },
		"memory map":    func() error { return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_EXE_FILE, 0, 0, 0) },
		"uid map":       func() error { return os.WriteFile("/proc/self/uid_map", []byte("0 0 4294967295"), 0) },
		"gid map":       func() error { return os.WriteFile("/proc/self/gid_map", []byte("0 0 4294967295"), 0) },
		"setgroups":     func() error { return os.WriteFile("/proc/self/setgroups", []byte("allow"), 0) },
		"out of memory": func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) },
		"files":         func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 22, Max: 1 << 22}) },
		"processes":     func() error { return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1 << 22, Max: 1 << 22}) },
		"core":          func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 22, Max: 1 << 22}) },
		"priority":      func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -20) },
		"real time":     func() error { p := struct{ P int32 }{99}; return raw(unix.SYS_SCHED_SETSCHEDULER, 0, 1, pointer(&p)) },
	} {
		err := f()
		if err == nil && sentry() && (name == "out of memory" || name == "priority") { // gVisor's kernel only notes them
			r = append(r, sentrys)
			continue
		}
		r.add(name, err)
	}
	return append(r, become(nil)...)
}

func raw(nr uintptr, args ...uintptr) error {
	var a [3]uintptr
	copy(a[:], args)
	_, _, e := unix.RawSyscall(nr, a[0], a[1], a[2])
	return errno(e)
}

// speak tries to be process 1 on the node's socket, without the key.
func speak(args []string) []string {
	c, err := net.DialTimeout("unix", args[0], 5*time.Second)
	if err != nil {
		return []string{word(err)}
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = c.Write([]byte("WFT\x01" + args[1] + strings.Repeat("n", 32)))
	b := make([]byte, 64)
	if _, err := io.ReadFull(c, b); err == nil {
		_, _ = c.Write(make([]byte, 32)) // no proof
		if n, _ := c.Read(b); n > 0 {
			return []string{reached + ":socket"}
		}
	}
	return []string{"refused"}
}
