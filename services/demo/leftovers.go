package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// leftovers lists what still belongs to a mesh that was removed: processes, mounts, control groups. It
// looks at the kernel's own tables, not at what any part of Weft believes.
func leftovers(dataDir string) ([]string, error) {
	sum := sha256.Sum256([]byte(filepath.Clean(dataDir)))
	owner := hex.EncodeToString(sum[:4]) // by which the runtime service names what it makes outside
	run := "/run/weft/" + owner
	var left []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && (below(f[4], dataDir) || below(f[4], run)) {
			left = append(left, "mount "+f[4])
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/weft/" + owner + "/*", "/sys/fs/cgroup/weft/" + owner + "/*"} {
		groups, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			if st, err := os.Stat(g); err == nil && st.IsDir() {
				left = append(left, "control group "+g)
			}
		}
	}
	ps, err := processes(dataDir, run)
	return append(left, ps...), err
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// processes lists those whose command line names one of the paths.
func processes(paths ...string) ([]string, error) {
	es, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range es {
		b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || len(b) == 0 || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		line := strings.ReplaceAll(string(b), "\x00", " ")
		for _, p := range paths {
			if strings.Contains(line, p) {
				out = append(out, "process "+e.Name()+" "+line)
				break
			}
		}
	}
	return out, nil
}
