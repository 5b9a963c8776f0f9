package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Shares is a weight in the form of version 1, where 1024 is what all have.
func Shares(weight int64) uint64 { return uint64(max(2, weight*1024/100)) }

// weight is the setting of it.
func (g Group) weight(weight int64) []setting {
	switch {
	case weight == 0:
		return nil
	case g.tree.unified:
		return []setting{{"cpu", g.weightFile(), strconv.FormatInt(weight, 10)}}
	}
	return []setting{{"cpu", g.weightFile(), strconv.FormatUint(Shares(weight), 10)}}
}

func (g Group) weightFile() string {
	if g.tree.unified {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// IO bounds bytes a second from and to one disk; 0: no bound.
type IO struct{ Read, Write int64 }

// LimitsIO says what the machine can't do of it, in the order of read and write. On version 1 the kernel does not know
// whose the writes are that it does later, so only those are bounded that somebody waits for.
func (t *Tree) LimitsIO() (read, write bool) {
	if t.unified {
		return true, true
	}
	_, err := os.Stat(filepath.Join(t.mounts["blkio"], "blkio.throttle.read_bps_device"))
	return t.mounts["blkio"] != "" && err == nil, false
}

// SetIO bounds the group's traffic with the disk that path lies on. A machine that can't do it does nothing.
func (g Group) SetIO(path string, io IO) error {
	if io == (IO{}) {
		return nil
	}
	disk, err := diskOf(path)
	if err != nil {
		return err
	}
	rate := func(bytes int64) string {
		if bytes == 0 {
			return "max"
		}
		return strconv.FormatInt(bytes, 10)
	}
	if g.tree.unified {
		return ignoreMissing(g.write(setting{"io", "io.max", fmt.Sprintf("%s rbps=%s wbps=%s", disk, rate(io.Read), rate(io.Write))}))
	}
	if read, _ := g.tree.LimitsIO(); !read {
		return nil
	}
	return g.write(setting{"blkio", "blkio.throttle.read_bps_device", fmt.Sprintf("%s %d", disk, io.Read)},
		setting{"blkio", "blkio.throttle.write_bps_device", fmt.Sprintf("%s %d", disk, io.Write)})
}

// ignoreMissing: the controller may not be given to this group.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// diskOf is the number of the disk that path lies on, of the whole one where that is a partition.
func diskOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("disk of %s: %w", path, err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	at, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return "", fmt.Errorf("%s lies on no disk whose traffic can be bounded: %w", path, err)
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err != nil {
		return number, nil
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(at), "dev"))
	return strings.TrimSpace(string(whole)), err
}
