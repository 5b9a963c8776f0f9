package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
)

// HostRange is the first of the host's ids that are this sandbox's.
func (s *Sandbox) HostRange() uint32 { return s.ids.first() }

// TakeOver gives the files in the writable part of a prepared workspace to this sandbox: they were written by one whose ids
// begin at from, as copies have them. Nobody else has them mounted yet. What is not of that range stays as it is.
func (s *Sandbox) TakeOver(ctx context.Context, p filesystem.Prepared, from uint32) error {
	if p.Layers == nil || p.Layers.Upper == "" || from == s.ids.first() {
		return nil
	}
	fd, err := openDir(unix.AT_FDCWD, p.Layers.Upper)
	if err != nil {
		return fmt.Errorf("files to take over: %w", err)
	}
	defer unix.Close(fd)
	return shiftOwners(ctx, fd, from, s.ids.first(), 0)
}

// shiftOwners moves the owners of all below dir from one range to another. It follows no link.
func shiftOwners(ctx context.Context, dir int, from, to uint32, depth int) error {
	if depth > maxTreeDepth {
		return fault.New(fault.Invalid, "the files nest deeper than %d directories", maxTreeDepth)
	}
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			sub, err := openDir(dir, name)
			if err != nil {
				return err
			}
			err = shiftOwners(ctx, sub, from, to, depth+1)
			unix.Close(sub)
			if err != nil {
				return err
			}
		}
		uid, gid := shifted(st.Uid, from, to), shifted(st.Gid, from, to)
		if uid == st.Uid && gid == st.Gid {
			continue // done with another name of it, or nobody's
		}
		if err := unix.Fchownat(dir, name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 { // which a change of owner takes away
			if err := unix.Fchmodat(dir, name, st.Mode&0o7777, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func shifted(id, from, to uint32) uint32 {
	if id < from || id-from >= rangeSize {
		return id
	}
	return id - from + to
}

// namesIn lists a directory that is open.
func namesIn(dir int) ([]string, error) {
	listing, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(listing), ".")
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}
