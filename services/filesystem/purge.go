package filesystem

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Purge unmounts every overlay of the data directory, the last mounted first. No service may be running there.
// What sandboxes had not merged is removed by the next service's sweep; heads, snapshots and artifacts stay.
func Purge(dataDir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	prefix := filepath.Clean(dataDir) + "/"
	var points []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		// The fifth field is the mount point; a space in it is written as \040.
		fields := strings.Fields(sc.Text())
		if len(fields) > 4 && strings.HasPrefix(unescape(fields[4])+"/", prefix) {
			points = append(points, unescape(fields[4]))
		}
	}
	var errs []error
	for i := len(points) - 1; i >= 0; i-- {
		if err := unix.Unmount(points[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", points[i], err))
		}
	}
	return errors.Join(errs...)
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
