package weftinit

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	clockTick = 100 // USER_HZ: the unit of times in /proc, the same on every Linux that Go runs on
	// noLimit is above any limit that somebody set; the kernel writes huge numbers for none.
	noLimit = 1 << 60
)

type usage wire.Usage

// measure looks at the cgroup that is mounted in the sandbox, of either version, and sums the
// processes up where there is none.
func measure() wire.Usage {
	procs, _ := readProcesses()
	u := usage{PIDs: len(procs), Source: "proc"}
	if p, ok := procs[os.Getpid()]; ok {
		u.InitRSS = p.rssPages * int64(os.Getpagesize())
	}
	block(func() { u.fromCgroup(procs) })
	return wire.Usage(u)
}

// cgroupRoot is where a sandbox sees its own cgroup, if it was mounted.
const cgroupRoot = "/sys/fs/cgroup"

// pidsLimit is the limit of the sandbox's processes; 0 if there is none, or it can't be seen.
func pidsLimit() int64 {
	return max(limit(cgroupRoot+"/pids.max"), limit(cgroupRoot+"/pids/pids.max"))
}

func (u *usage) fromCgroup(procs map[int]processStat) {
	const root = cgroupRoot
	u.PIDsLimit = int(pidsLimit())
	switch {
	case number(root+"/memory.current") > 0:
		u.Source = "cgroup2"
		u.MemoryBytes = number(root + "/memory.current")
		u.MemoryLimit = limit(root + "/memory.max")
		u.CPU = time.Duration(field(root+"/cpu.stat", "usage_usec")) * time.Microsecond
		u.OOMKills = int(field(root+"/memory.events", "oom_kill"))
	case number(root+"/memory/memory.usage_in_bytes") > 0:
		u.Source = "cgroup1"
		u.MemoryBytes = number(root + "/memory/memory.usage_in_bytes")
		u.MemoryLimit = limit(root + "/memory/memory.limit_in_bytes")
		u.CPU = time.Duration(number(root + "/cpuacct/cpuacct.usage"))
		u.OOMKills = int(field(root+"/memory/memory.oom_control", "oom_kill"))
	default:
		for _, p := range procs {
			u.MemoryBytes += p.rssPages * int64(os.Getpagesize())
			u.CPU += time.Duration(p.userTicks+p.sysTicks) * time.Second / clockTick
		}
	}
}

// number reads a file that holds one; 0 if it can't.
func number(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n
}

// limit is number, but 0 where there is no limit: "max", or a number too large to be one.
func limit(path string) int64 {
	if n := number(path); n < noLimit {
		return n
	}
	return 0
}

// field reads the number behind a name in a file of such lines.
func field(path, name string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n
		}
	}
	return 0
}
