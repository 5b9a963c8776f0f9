// Package mounts finds and takes away the mounts below a directory, in this process's mount namespace.
package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Below lists the mount points at dir and below it, in the order in which they were mounted. dir is absolute.
func Below(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	dir = filepath.Clean(dir)
	var points []string
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), 1<<20) // an overlay's line names all of its layers
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if p := escapes.Replace(fields[4]); p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			points = append(points, p)
		}
	}
	return points, lines.Err()
}

// escapes undoes the octal form in which the kernel writes blanks and backslashes.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Detach takes away the mounts at dir and below it, the last first, and says how many. It is lazy: a mount that
// somebody still sees elsewhere, or has open, lives on there. What is gone by itself is no error.
func Detach(dir string) (int, error) {
	points, err := Below(dir)
	if err != nil {
		return 0, err
	}
	return detach(points)
}

// DetachBelow is Detach without dir itself.
func DetachBelow(dir string) (int, error) {
	points, err := Below(dir)
	if err != nil {
		return 0, err
	}
	dir = filepath.Clean(dir)
	return detach(slices.DeleteFunc(points, func(p string) bool { return p == dir }))
}

func detach(points []string) (int, error) {
	var errs []error
	n := 0
	for _, p := range slices.Backward(points) {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
			n++
		case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
		}
	}
	return n, errors.Join(errs...)
}
