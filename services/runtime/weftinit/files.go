package weftinit

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	// permBits are what a caller may set of a mode; setuid and setgid do nothing here and are left out.
	permBits = 0o1777
)

// onFiles does the operations on files, each with the permissions of the identity that it names.
func (c *call) onFiles() error {
	r := c.req
	if r.As == nil {
		return fault.New(fault.Invalid, "operation %.40q is unknown, or lacks the identity to act as", string(r.Op))
	}
	if err := r.As.Check(); err != nil {
		return err
	}
	if err := wire.CheckPath("path", r.Path); err != nil {
		return err
	}
	switch r.Op {
	case wire.OpMove, wire.OpCopy:
		if err := wire.CheckPath("target", r.To); err != nil {
			return err
		}
	}
	q, err := c.query()
	if err != nil {
		return err
	}
	operation, ok := fileOps[r.Op]
	if !ok {
		return fault.New(fault.Invalid, "operation %.40q is unknown", string(r.Op))
	}
	return operation(c, q)
}

// fileOps are all operations on files.
var fileOps = map[wire.Op]func(*call, wire.FileQuery) error{
	wire.OpStat: (*call).stat, wire.OpRead: (*call).read, wire.OpWrite: (*call).write, wire.OpAppend: (*call).append,
	wire.OpEntries: (*call).entries, wire.OpMkdir: (*call).mkdir,
	wire.OpRemove: (*call).remove, wire.OpMove: (*call).move, wire.OpCopy: (*call).copy,
	wire.OpChmod: (*call).chmod, wire.OpTouch: (*call).touch, wire.OpGlob: (*call).glob, wire.OpSearch: (*call).search,
	wire.OpReplace: (*call).replace, wire.OpWatch: (*call).watch, wire.OpTarOut: (*call).tarOut, wire.OpTarIn: (*call).tarIn,
}

func (c *call) file(info wire.FileInfo, err error) error {
	if errors.Is(err, errCut) {
		return nil
	}
	if err != nil {
		return fileFault(string(c.req.Path), err)
	}
	return c.reply(wire.Reply{File: &info})
}

// fileFault gives an error of the file system the code that its caller can act on.
func fileFault(path string, err error) error {
	var f *fault.Error
	code := fault.Internal
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, errNotRegular):
		return fault.New(fault.Invalid, "%.200q is not a regular file", path)
	case errors.Is(err, fs.ErrNotExist):
		code = fault.NotFound
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		code = fault.Denied
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EBUSY):
		code = fault.Conflict
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO):
		code = fault.Invalid
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EMFILE):
		code = fault.Exhausted
	}
	return fault.Wrap(err, code, "%.200q: %s", path, errText(err))
}
