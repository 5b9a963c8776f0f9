package runtime

import (
	"bytes"
	"os"
	goruntime "runtime"
	"strconv"

	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// closed reports whether nothing new is to be made ahead: the node drains, is crowded, or is short of disk or memory.
func (k *poolkeeper) closed() bool {
	k.s.mu.Lock()
	draining := k.s.draining
	k.s.mu.Unlock()
	disk, err := sandbox.FreeDisk(k.s.cfg.DataDir)
	return draining || err != nil || disk < k.s.cfg.MinFree || memoryShort() || k.s.node.Crowded()
}

// memoryShort reports whether less than a tenth of the machine's memory is available.
func memoryShort() bool {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return false
	}
	value := func(name string) int64 {
		_, rest, _ := bytes.Cut(b, []byte(name))
		f := bytes.Fields(rest)
		if len(f) == 0 {
			return 0
		}
		n, _ := strconv.ParseInt(string(f[0]), 10, 64)
		return n
	}
	return value("MemAvailable:") < value("MemTotal:")/10
}

// overloaded reports whether the machine has more to do than it can.
func overloaded() bool {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	load, err := strconv.ParseFloat(string(first), 64)
	return err == nil && load > busyLoad*float64(goruntime.NumCPU())
}
