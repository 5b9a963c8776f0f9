package weftinit

import (
	"bytes"
	"os"
	"strconv"
)

// processStat is what a sweep needs to know of a process.
type processStat struct {
	pid, parent, session int
	zombie               bool
	start                uint64 // in ticks since boot: with the pid it names one process for good
	showsGroups          bool   // gVisor does not
	groups               []byte // as in /proc: ids with spaces between and after
	userTicks, sysTicks  uint64
	rssPages             int64
}

func (p processStat) hasGroup(gid uint32) bool {
	want := strconv.AppendUint(nil, uint64(gid), 10)
	for g := range bytes.FieldsSeq(p.groups) {
		if bytes.Equal(g, want) {
			return true
		}
	}
	return false
}

// readProcesses reads all of /proc. What ends meanwhile is left out and counted.
func readProcesses() (out map[int]processStat, vanished int) {
	block(func() { out, vanished = scanProcesses() })
	return out, vanished
}

func scanProcesses() (out map[int]processStat, vanished int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	out = make(map[int]processStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			out[pid] = p
		} else {
			vanished++
		}
	}
	return out, vanished
}

func readProcess(pid int) (p processStat, ok bool) {
	base := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(base + "/stat")
	if err != nil {
		return p, false
	}
	// The name in parentheses may hold anything; what follows the last one does not.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 22 {
		return p, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	p = processStat{
		pid: pid, parent: num(1), session: num(3),
		zombie:    f[0][0] == 'Z' || f[0][0] == 'X',
		userTicks: uint64(num(11)), sysTicks: uint64(num(12)),
		start: uint64(num(19)), rssPages: int64(num(21)),
	}
	status, err := os.ReadFile(base + "/status")
	if err != nil {
		return p, false
	}
	if _, rest, ok := bytes.Cut(status, []byte("\nGroups:")); ok {
		p.groups, _, p.showsGroups = bytes.Cut(rest, []byte("\n"))
	}
	return p, true
}
