// Package calm makes a Go program disturb its machine less. While anything in it runs, the runtime's monitor thread looks about
// every 20 µs; the kernel makes 70 of that, for timers may be late by 50. Where several such programs share two cores, each look
// takes a core from somebody who works, twice switching context: a command in a sandbox, which passes through three of them, takes
// a tenth longer for it. Timers of that one thread may be later.
//
// What the monitor does in time for others is to take a processor away from a goroutine that is in a long system call. That
// happens as much later; so the slack is well under a millisecond.
package calm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Slack that programs of ours ask for.
const Slack = 300 * time.Microsecond

// Monitor lets the timers of the runtime's monitor thread be late by slack. It takes CAP_SYS_NICE, and a kernel that has
// /proc/<tid>/timerslack_ns: gVisor has not. An error changes nothing, and matters to nobody but the curious.
//
// It is meant to be called early: the monitor is known by being the oldest thread after the first.
func Monitor(slack time.Duration) error {
	tid, err := monitor("/proc/self/task")
	if err != nil {
		return err
	}
	path := filepath.Join("/proc", strconv.Itoa(tid), "timerslack_ns")
	return os.WriteFile(path, strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
}

// monitor gives the thread that was made first. The kernel lists threads in the order in which they were made.
func monitor(tasks string) (int, error) {
	d, err := os.Open(tasks)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	names, err := d.Readdirnames(2)
	if err != nil {
		return 0, err
	}
	if len(names) < 2 {
		return 0, fmt.Errorf("%s: only %d threads", tasks, len(names))
	}
	return strconv.Atoi(names[1])
}
