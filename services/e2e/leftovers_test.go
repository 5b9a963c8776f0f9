package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leftovers lists what still belongs to the data directory: processes, mounts, control groups, directories
// of running things. It looks at the kernel's own tables, not at what any part of Weft believes.
func leftovers(t testing.TB, dir string) []string {
	t.Helper()
	run := runDir(dir)
	owner := filepath.Base(run)
	var left []string
	left = append(left, processes(t, dir, run)...)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for _, line := range strings.Split(string(mounts), "\n") {
		if strings.Contains(line, dir+"/") || strings.Contains(line, run) {
			left = append(left, "mount "+line)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/weft/" + owner + "/*")
	require.NoError(t, err)
	unified, err := filepath.Glob("/sys/fs/cgroup/weft/" + owner + "/*")
	require.NoError(t, err)
	for _, g := range append(groups, unified...) {
		if st, err := os.Stat(g); err == nil && st.IsDir() {
			left = append(left, "cgroup "+g)
		}
	}
	for _, of := range []string{"shims/*", "sup/*", "ranges/*", "runc/*/*", "state/io.containerd.runtime.v2.task/*/*"} {
		sandboxes, err := filepath.Glob(filepath.Join(run, of))
		require.NoError(t, err)
		for _, s := range sandboxes {
			left = append(left, "directory "+s)
		}
	}
	return left
}

// runDir is where the node on a data directory keeps what need not outlive the machine's next start; its last
// part is how the node marks what is its own.
func runDir(dir string) string {
	sum := sha256.Sum256([]byte(filepath.Join(dir, "runtime")))
	return "/run/weft/" + hex.EncodeToString(sum[:4])
}

// processes lists those whose command line names one of the paths.
func processes(t testing.TB, paths ...string) []string {
	t.Helper()
	es, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var out []string
	for _, e := range es {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || len(b) == 0 {
			continue
		}
		line := strings.ReplaceAll(string(b), "\x00", " ")
		for _, p := range paths {
			if strings.Contains(line, p) && e.Name() != fmt.Sprint(os.Getpid()) {
				out = append(out, "process "+e.Name()+" "+line)
				break
			}
		}
	}
	return out
}
