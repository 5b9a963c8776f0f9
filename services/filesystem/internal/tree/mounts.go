package tree

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountsBelow lists the mount points at or below dir in this process's mount namespace, in the order in which they
// were mounted.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescape(fields[4]); at == dir || strings.HasPrefix(at, dir+"/") {
			out = append(out, at)
		}
	}
	return out, lines.Err()
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// unescape reads a path as mountinfo writes it.
func unescape(s string) string { return escapes.Replace(s) }

// unmountBelow takes away every mount at or below dir, the last first, and checks that none is left. A mount that a
// sandbox still sees lives on there until that sandbox ends.
func unmountBelow(dir string) error {
	for range 100 { // mounts may be stacked on one point
		at, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(at) == 0 {
			return nil
		}
		for _, p := range slices.Backward(at) {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("unmount %s: %w", p, err)
			}
		}
	}
	return fmt.Errorf("%s is mounted again and again", dir)
}
