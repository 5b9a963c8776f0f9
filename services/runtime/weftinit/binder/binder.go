// Package binder shows one directory at another, once and later, in the name of a process that may not do it any more
// by then.
//
// It makes a process that shares this one's memory (so it costs none) and keeps the capabilities that this one has at
// that time. All it can do is written in a few instructions of assembly: wait for a word in that memory, bind, end. It
// blocks every signal, has descriptors of its own that it never uses, and runs no Go.
package binder

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Binder is the process.
type Binder struct {
	PID  int // a child of this process, which somebody must wait for; its exit code is an errno
	page []byte
}

// orders is what the process knows. It lies at the beginning of a page; the rest of that holds the paths, and the stack,
// which nothing uses.
type orders struct {
	word     uint32 // the process waits for another value than 0
	_        uint32
	from, to uintptr
	kind     uintptr // an empty string, in the place of a type of file system
}

const (
	pageSize = 16384 // at least a page, on every machine
	maxPath  = 4096
)

// Start makes the process.
func Start(from, to string) (*Binder, error) {
	if len(from) >= maxPath || len(to) >= maxPath {
		return nil, unix.ENAMETOOLONG
	}
	page, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory of the process that binds: %w", err)
	}
	o := (*orders)(unsafe.Pointer(&page[0]))
	at := int(unsafe.Sizeof(*o))
	put := func(s string) uintptr {
		p := uintptr(unsafe.Pointer(&page[at]))
		at += copy(page[at:], s) + 1
		return p
	}
	o.from, o.to, o.kind = put(from), put(to), put("")

	// With every signal blocked, as the process is to have it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := ^uint64(0), uint64(0)
	if err := mask(&all, &before); err != nil {
		return nil, err
	}
	pid := clone(unsafe.Pointer(o), unsafe.Pointer(&page[pageSize-64]))
	if err := mask(&before, nil); err != nil {
		return nil, err
	}
	if pid < 0 {
		_ = unix.Munmap(page)
		return nil, fmt.Errorf("make the process that binds: %w", unix.Errno(-pid))
	}
	return &Binder{PID: pid, page: page}, nil
}

// mask sets this thread's mask of signals.
func mask(set, old *uint64) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	if e != 0 {
		return fmt.Errorf("mask of signals: %w", e)
	}
	return nil
}

// Speak lets the process bind and end.
func (b *Binder) Speak() error {
	word := (*uint32)(unsafe.Pointer(&b.page[0]))
	atomic.StoreUint32(word, 1)
	if _, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), 1|128, 1, 0, 0, 0); e != 0 { // FUTEX_WAKE, private
		return fmt.Errorf("wake the process that binds: %w", e)
	}
	return nil
}

// Close gives its memory back. It must have ended.
func (b *Binder) Close() error { return unix.Munmap(b.page) }

// clone makes the process, and gives its pid or a negative errno.
//
//go:noescape
func clone(o, stack unsafe.Pointer) int
