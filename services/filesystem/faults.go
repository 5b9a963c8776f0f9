package filesystem

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

func checkID(what, id string) error {
	if err := schemas.CheckID(what, id); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// checkPath refuses a path from outside that can't name anything in a workspace.
func checkPath(path string) error {
	if _, err := manifest.SplitPath(path); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// storeFault is the fault for what went wrong on this node's disk. A full one is said so.
func storeFault(err error) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "the disk of the node that keeps the files is full; free some space on it, then try again")
	}
	return err
}
