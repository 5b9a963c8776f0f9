// Package lockfile lets one process at a time have what a file stands for. The kernel drops the lock when that process
// ends, however it ends.
package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process has the lock.
var ErrHeld = errors.New("locked by another process")

// A process that is killed while it starts another leaves the lock for a moment to that one, which has every descriptor until
// it executes its program. So the lock of a holder that is gone is waited for: so long, and looked at so often.
const (
	forked = 10 * time.Second
	look   = 10 * time.Millisecond
)

// Take takes the lock of the file at path, which is made where it is missing, and writes this process's id into it. It waits for
// nobody who lives: then the error is ErrHeld, and holder says who has it, as far as that is known. Closing the file gives it back.
func Take(path string) (f *os.File, holder string, err error) {
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, "", err
	}
	for end := time.Now().Add(forked); ; time.Sleep(look) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		b, _ := os.ReadFile(path)
		holder = strings.TrimSpace(string(b))
		if errors.Is(err, unix.EWOULDBLOCK) && !lives(holder) && time.Now().Before(end) {
			continue
		}
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, holder, fmt.Errorf("%s: %w", path, err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	}
	if errors.Is(err, unix.ENOSPC) { // a full disk is no reason to run twice, nor not to run
		err = nil
	}
	if err != nil {
		_ = f.Close()
		return nil, "", err
	}
	return f, "", nil
}

// lives says whether the process whose id was written into a lock is there. Nothing written yet: somebody is about to.
func lives(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	if err != nil {
		return false
	}
	// The name in brackets may hold anything; the state follows the last one.
	after := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}
