// Package failpoint lets a test kill this process at a named point of its way. A program calls Hit
// where dying would be interesting: between two writes that belong together. Without WEFT_FAILPOINT in
// the environment a Hit is one read of a variable. With WEFT_FAILPOINT=name or name:n the process
// sends itself SIGKILL at the n-th Hit of that name: no deferred call runs, nothing is flushed, exactly
// as when the kernel's out-of-memory killer or an operator takes it.
package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Env is the variable that arms one point: name, or name:n for the n-th time.
const Env = "WEFT_FAILPOINT"

// point is the armed one. It is made before main runs and counted under its lock.
type point struct {
	mu   sync.Mutex
	name string
	left int
}

var (
	armed = fromEnv(os.Getenv(Env))
	die   = killSelf // replaced by this package's own test

	namesMu sync.Mutex
	names   []string
)

// Register makes name known, so that a test can go through all of them, and gives it back. It is
// meant for package variables: var afterHead = failpoint.Register("filesystem.merge.after-head").
func Register(name string) string {
	namesMu.Lock()
	defer namesMu.Unlock()
	if !slices.Contains(names, name) {
		names = append(names, name)
		slices.Sort(names)
	}
	return name
}

// Names lists what was registered, sorted.
func Names() []string {
	namesMu.Lock()
	defer namesMu.Unlock()
	return slices.Clone(names)
}

// Hit ends the process if name is the armed point and this is its turn.
func Hit(name string) {
	if armed == nil || armed.name != name {
		return
	}
	armed.hit()
}

func (p *point) hit() {
	p.mu.Lock()
	p.left--
	now := p.left == 0
	p.mu.Unlock()
	if now {
		die()
	}
}

// fromEnv reads the variable's value. What can't be read arms nothing and is said on stderr: a crash
// test that never crashes must not look as if it had passed.
func fromEnv(v string) *point {
	if v == "" {
		return nil
	}
	name, count, ok := strings.Cut(v, ":")
	n := 1
	if ok {
		var err error
		if n, err = strconv.Atoi(count); err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "%s=%q: want name or name:n with n of at least 1; nothing is armed\n", Env, v)
			return nil
		}
	}
	return &point{name: name, left: n}
}

// killSelf does not return: SIGKILL can't be caught, and the signal to oneself is delivered before kill returns
// to user space or very soon after, so the calling goroutine waits for it.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
