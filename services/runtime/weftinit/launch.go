package weftinit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Exit codes of a command that could not be executed, as shells have them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// launch starts the process's program. A command that can't be executed ends the process with
// code 126 or 127; an error means that the sandbox could not start anything now.
func (p *process) launch() error {
	if msg := p.checkDir(); msg != "" {
		p.fail(codeNotExecutable, msg)
		return nil
	}
	path, err := p.lookPath()
	if err != nil {
		p.failExec(path, err)
		return nil
	}
	dir, err := p.openDir()
	if err != nil {
		p.failDir(path, err)
		return nil
	}
	defer dir.close()
	tag, err := p.init.tags.take()
	if err != nil {
		return fault.Wrap(err, fault.Exhausted, "the sandbox has too many process trees; end some")
	}
	io, err := p.openIO()
	if err != nil {
		io.close()
		return spawnFault(err)
	}
	attr := p.attributes(tag, io)
	attr.Dir = dir.path
	p.begin = time.Now()
	if limits := limitsToSet(p.spec.Rlimits); len(limits) > 0 {
		p.pid, err = p.forkLimited(path, limits, attr)
	} else {
		p.pid, err = p.init.reaper.fork(path, wire.Strings(p.spec.Argv), attr, p.reaped)
	}
	io.closeChild()
	if err != nil {
		io.close()
		p.stdin, p.tty = nil, nil
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return spawnFault(err)
		}
		p.failExec(path, err)
		return nil
	}
	p.tree = tree{root: p.pid, tag: tag}
	p.outputs = io.outputs
	p.open = len(io.outputs)
	for i, f := range io.outputs {
		go p.pump(f, wire.Stream(i+1))
	}
	// What was only for the start may be large, and is not kept.
	p.spec.Argv, p.spec.Env = clipArgs(p.spec.Argv), nil
	go p.supervise()
	return nil
}

func spawnFault(err error) error {
	return fault.Wrap(err, fault.Exhausted,
		"the sandbox can't start another process (%s): its pids, memory or descriptor limit is reached; end some", errText(err))
}

// attributes of the child. Groups end with the tree's tag.
func (p *process) attributes(tag uint32, io *childIO) *syscall.ProcAttr {
	id := p.spec.Identity
	groups := append([]uint32{}, id.Groups...)
	if tag != 0 {
		groups = append(groups, tag)
	}
	return &syscall.ProcAttr{
		Dir:   string(p.spec.Dir),
		Env:   wire.Strings(p.spec.Env),
		Files: io.child[:],
		Sys: &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: id.UID, Gid: id.GID, Groups: groups},
			Setsid:     true,
			Setctty:    p.spec.PTY != nil,
			Ctty:       0,
		},
	}
}

// checkDir tells a missing working directory from a missing command, which execve's error does not.
func (p *process) checkDir() string {
	var st unix.Stat_t
	dir := string(p.spec.Dir)
	var err error
	block(func() { err = unix.Stat(dir, &st) })
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Sprintf("the working directory %s is not a directory", dir)
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return fmt.Sprintf("the working directory %s does not exist", dir)
	}
	return "" // or not visible for process 1: the child will see
}

// lookPath finds the program as the payload's user would.
func (p *process) lookPath() (string, error) {
	name := string(p.spec.Argv[0])
	if strings.Contains(name, "/") {
		return name, nil // relative to Dir: the child changes into it before it executes
	}
	search := ""
	for _, e := range p.spec.Env {
		if v, ok := strings.CutPrefix(string(e), "PATH="); ok {
			search = v
		}
	}
	var path string
	var hidden, found bool
	block(func() { path, hidden, found = p.searchPath(name, search) })
	if path == "" && hidden {
		// Some directory can be seen by the payload's user only.
		err := asUser(p.spec.Identity, func() error {
			path, _, found = p.searchPath(name, search)
			return nil
		})
		if err != nil {
			return name, err
		}
	}
	switch {
	case path != "":
		return path, nil
	case found:
		return name, unix.EACCES
	}
	return name, unix.ENOENT
}

// searchPath gives the first executable file; hidden says that some place could not be looked at,
// found that a file is there but not executable.
func (p *process) searchPath(name, search string) (path string, hidden, found bool) {
	for dir := range strings.SplitSeq(search, ":") {
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		at := candidate
		if dir[0] != '/' {
			at = string(p.spec.Dir) + "/" + candidate
		}
		var st unix.Stat_t
		err := unix.Stat(at, &st)
		switch {
		case errors.Is(err, unix.EACCES):
			hidden = true
		case err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG:
		case st.Mode&0o111 == 0:
			found = true
		default:
			return candidate, hidden, true
		}
	}
	return "", hidden, found
}

// failExec says why a command can't be executed.
func (p *process) failExec(path string, err error) {
	name := string(p.spec.Argv[0])
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		var st unix.Stat_t
		if strings.HasPrefix(path, "/") && unix.Stat(path, &st) == nil {
			p.fail(codeNotFound, fmt.Sprintf("%s: its interpreter (the first line's #!, or the dynamic loader) does not exist", path))
			return
		}
		if strings.Contains(name, "/") {
			p.fail(codeNotFound, fmt.Sprintf("%s: no such file", name))
			return
		}
		p.fail(codeNotFound, fmt.Sprintf("%s: command not found in PATH", name))
	case errors.Is(err, unix.E2BIG):
		p.fail(codeNotExecutable, "arguments and environment are longer than the kernel takes; put them into a file or stdin")
	case errors.Is(err, unix.EACCES):
		p.fail(codeNotExecutable, fmt.Sprintf("%s: permission denied for uid %d: the file, its directories or %s", name, p.spec.Identity.UID, p.spec.Dir))
	case errors.Is(err, unix.ENOEXEC):
		p.fail(codeNotExecutable, fmt.Sprintf("%s: not a program of this machine, and it has no #! line", name))
	default:
		p.fail(codeNotExecutable, fmt.Sprintf("%s: %s", name, errText(err)))
	}
}

// errText is an error's text without what wraps it.
func errText(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}

// childIO is what a child has as 0, 1 and 2, and our ends of it.
type childIO struct {
	child   [3]uintptr
	files   []int // child's ends, to be closed here
	outputs []*os.File
	ours    []*os.File
}

func (c *childIO) closeChild() {
	for _, fd := range c.files {
		_ = unix.Close(fd)
	}
	c.files = nil
}

func (c *childIO) close() {
	c.closeChild()
	for _, f := range c.ours {
		_ = f.Close()
	}
}

// openIO makes the pipes or the terminal.
func (p *process) openIO() (*childIO, error) {
	c := &childIO{}
	if p.spec.PTY != nil {
		return c, p.openTerminal(c)
	}
	if p.spec.Stdin {
		r, w, err := pipe(false)
		if err != nil {
			return c, err
		}
		c.files, c.ours = append(c.files, r), append(c.ours, w)
		c.child[0] = uintptr(r)
		p.stdin = &stdin{file: w}
	} else {
		null, err := devNull()
		if err != nil {
			return c, err
		}
		fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return c, err
		}
		c.files = append(c.files, fd)
		c.child[0] = uintptr(fd)
	}
	for i := 1; i <= 2; i++ {
		w, r, err := pipe(true)
		if err != nil {
			return c, err
		}
		c.files, c.ours, c.outputs = append(c.files, w), append(c.ours, r), append(c.outputs, r)
		c.child[i] = uintptr(w)
	}
	return c, nil
}

// devNull is opened once, before any payload runs: root inside may put something else there that process 1 can
// open and payload can't, as its own memory.
var devNull = sync.OnceValues(func() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) })

// pipe makes a pipe of which the child's end blocks, as programs expect, and ours does not. out:
// the child writes.
func pipe(out bool) (child int, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	mine, child := fds[0], fds[1]
	if !out {
		mine, child = child, mine
	}
	if err := unix.SetNonblock(mine, true); err != nil {
		_ = unix.Close(mine)
		_ = unix.Close(child)
		return -1, nil, err
	}
	return child, os.NewFile(uintptr(mine), "pipe"), nil
}
