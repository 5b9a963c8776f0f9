package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// moved is how many bytes a process has read and written so far, whatever they were.
func moved(t *testing.T, pid int) (n int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if name, count, _ := strings.Cut(strings.TrimSpace(line), ": "); name == "rchar" || name == "wchar" {
			k, err := strconv.ParseInt(count, 10, 64)
			require.NoError(t, err)
			n += k
		}
	}
	return n
}

// openIn is what a process has open that another could hold the other end of, and the files that lie below dir.
func openIn(t *testing.T, pid int, dir string) (out []string) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, fds)
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err == nil && (strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, dir+"/")) {
			out = append(out, to)
		}
	}
	return out
}

// TestNothingOfPayloadsPassesItsShim: members of a pool for all tenants share a shim. What they write goes past it, they
// hold no end of anything that it reads, and it has none of their files open.
func TestNothingOfPayloadsPassesItsShim(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	rootInside := func(s *Spec) { s.Isolation.RootInside = true }
	for name, change := range map[string]func(*Spec){"standard": rootInside, "high": func(s *Spec) { high(s); rootInside(s) }} {
		t.Run(name, func(t *testing.T) {
			const much = 16 << 20
			s := create(t, n, change)
			shim, _ := shimOf(t, s)
			p, err := s.Supervisor().Start(within(t, time.Minute), supervisor.ProcessSpec{
				Argv: supervisor.Texts("/bin/sh", "-c", "sleep 1000"), Identity: s.Payload(), Env: supervisor.Texts("PATH=/usr/bin:/bin")})
			require.NoError(t, err)
			defer p.Close()
			before := moved(t, shim.PID)
			r, err := s.Supervisor().Run(within(t, time.Minute), supervisor.ProcessSpec{
				Argv: supervisor.Texts("/bin/sh", "-c", fmt.Sprintf(`head -c %[1]d /dev/zero; head -c %[1]d /dev/zero >&2; head -c %[1]d /dev/zero >/tmp/file
					for fd in 0 1 2 3 4 5; do head -c %[1]d /dev/zero >/proc/1/fd/$fd; done 2>/dev/null`, much)),
				Identity: s.Payload(), Dir: "/", Env: supervisor.Texts("PATH=/usr/bin:/bin")}, nil, 1<<20)
			require.NoError(t, err)
			require.True(t, r.Truncated, "it was written")
			require.Less(t, moved(t, shim.PID)-before, int64(much/16))

			if name == "standard" { // on high no payload has anything of the node's open, gVisor has
				heldApart(t, s, shim.PID)
			}
			require.NoError(t, s.Destroy(within(t, time.Minute)))
		})
	}
}

// heldApart: the shim reads what process 1 says of itself, and nothing that a process of the payload's could write to.
func heldApart(t *testing.T, s *Sandbox, shim int) {
	t.Helper()
	var inside []string
	for _, pid := range strings.Fields(groupFile(t, s, "pids", "cgroup.procs", "cgroup.procs")) {
		p, err := strconv.Atoi(pid)
		require.NoError(t, err)
		if p != s.init.PID {
			inside = append(inside, openIn(t, p, s.dir)...)
		}
	}
	require.NotEmpty(t, inside)
	for _, of := range openIn(t, shim, s.dir) {
		require.NotContains(t, inside, of)
	}
}
