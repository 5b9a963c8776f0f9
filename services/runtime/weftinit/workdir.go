package weftinit

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// workdir is the directory into which a child changes. It does that while it still has process 1's descriptors, and with root
// inside one of these is the way to the node's socket (see root.go). So there the directory is opened before, through none of
// them, and the child gets nothing but that: whatever is put in the path's place meanwhile.
type workdir struct {
	path string
	fd   int // -1: path is as it was given
}

func (p *process) openDir() (workdir, error) {
	d := workdir{string(p.spec.Dir), -1}
	if !rootInside {
		return d, nil
	}
	err := asUser(p.spec.Identity, func() (err error) {
		d.fd, err = openAt(unix.AT_FDCWD, d.path, unix.O_PATH|unix.O_DIRECTORY, 0, 0)
		return err
	})
	if err == nil {
		d.path = fdPath(d.fd)
	}
	return d, err
}

func (d workdir) close() {
	if d.fd >= 0 {
		_ = unix.Close(d.fd)
	}
}

// failDir says why a command has no working directory.
func (p *process) failDir(path string, err error) {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		p.fail(codeNotExecutable, fmt.Sprintf("the working directory %s does not exist", p.spec.Dir))
		return
	}
	p.failExec(path, err)
}
