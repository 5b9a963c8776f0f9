// Command hostile is code that tries to get out of its sandbox. Each attempt is one run of it with a verb
// and arguments; it prints, as words on one line, how it was refused: names of errors, or what it found
// instead of what it wanted. A word in capitals that is no error's name means that it got through.
//
//	hostile run    reads attempts as JSON from stdin, makes each in a process of its own, writes the results
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Words that are no error's name.
const (
	reached = "REACHED" // what was wanted was got
	hung    = "HUNG"    // neither got nor refused in time
	empty   = "empty"   // it is there and holds nothing
	none    = "none"    // no such thing was found anywhere
	own     = "own"     // what was got is the sandbox's own
	stays   = "stays"   // process 1 is as it was
	seen    = "seen"    // it can be read, and that is known
	sentrys = "gvisor"  // what was got is gVisor's own kernel's, and nothing of the node's
)

// verbs by name. Each gives words.
var verbs = map[string]func(args []string) []string{
	"read": readAll, "look": look, "write": writeAll, "create": createAll, "make": makeAll, "away": away,
	"writable": writable, "find": find, "devices": devices, "links": links, "cwd": cwd, "descriptors": descriptors, "handle": handle,
	"call": call, "socket": sockets, "clone": clone,
	"signals": signals, "threads": threads, "pidfd": pidfd, "peek": peek, "orphan": orphan, "zombies": zombies, "program": program, "weigh": weigh,
	"dial": dial, "speak": speak, "bomb": bomb, "pack": packets, "shm": sharedMemory, "queue": messageQueue, "pids": strangers,
	"setuid": setuidFile, "become": become, "gain": gain,
	"fill": fill, "inodes": inodes, "files": openFiles, "swap": swap,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: hostile verb args…")
		os.Exit(64)
	}
	if os.Args[1] == "run" {
		runAll()
		return
	}
	v := verbs[os.Args[1]]
	if v == nil {
		fmt.Fprintln(os.Stderr, "no verb", os.Args[1])
		os.Exit(64)
	}
	words := v(os.Args[2:])
	slices.Sort(words)
	fmt.Println(strings.Join(slices.Compact(words), " "))
}

// An attempt and what came of it.
type attempt struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Got  string   `json:"got"`
	MS   int64    `json:"ms"` // how long it took
}

// patience with one attempt. It is long because the machine may be busy; nothing waits for it otherwise.
const patience = time.Minute

func runAll() {
	var as []attempt
	if err := json.NewDecoder(os.Stdin).Decode(&as); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	for _, a := range as {
		at := time.Now()
		a.Got = runOne(a.Argv)
		a.MS = time.Since(at).Milliseconds()
		if err := out.Encode(a); err != nil {
			os.Exit(1)
		}
	}
}

func runOne(argv []string) string {
	var out, errs bytes.Buffer
	c := exec.Command("/proc/self/exe", argv...)
	c.Stdout, c.Stderr = &out, &errs
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return "NOT-STARTED " + err.Error()
	}
	t := time.AfterFunc(patience, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	if !t.Stop() {
		return hung
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return unix.SignalName(exit.Sys().(syscall.WaitStatus).Signal())
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "FAILED " + err.Error() + " " + strings.TrimSpace(errs.String())
	}
	return strings.TrimSpace(out.String())
}

// word is an error's name.
func word(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		if n := unix.ErrnoName(e); n != "" {
			return n
		}
		return fmt.Sprintf("errno-%d", int(e))
	}
	return "FAILED " + err.Error()
}

// refusals collects words: why each of several things was refused.
type refusals []string

func (r *refusals) add(what string, err error) {
	if err == nil {
		*r = append(*r, reached+":"+what)
		return
	}
	*r = append(*r, word(err))
}

// or gives w where nothing was collected.
func (r refusals) or(w string) []string {
	if len(r) == 0 {
		return []string{w}
	}
	return r
}
