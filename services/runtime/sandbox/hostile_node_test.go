package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// workingDirectories starts commands in directories that are links of process 1's: were a descriptor of the
// node's left open in it, that way led out.
func workingDirectories(t *testing.T, h *hostileRun) []string {
	var words []string
	dirs := []string{"/proc/1/cwd", "/proc/1/root", "/proc/self/root", "/proc/self/cwd", "/proc/self/fd", "/proc/1/fd/3/../../../../../.."}
	for fd := 3; fd < 12; fd++ {
		dirs = append(dirs, fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/1/fd/%d", fd))
	}
	for _, d := range dirs {
		c := h.command("cwd", h.marker, h.secret)
		c.Dir = supervisor.Text(d)
		words = append(words, h.run(t, c)...)
	}
	return words
}

// programByItself has process 1's program run as a command, directly and as an interpreter, and tries to write
// to it meanwhile. The file on the node stays what it was.
func programByItself(t *testing.T, h *hostileRun) []string {
	sum := func() [32]byte {
		b, err := os.ReadFile(machine.Init)
		require.NoError(t, err)
		return sha256.Sum256(b)
	}
	before := sum()
	h.sh(t, `printf '#!/proc/self/exe\n' > /tmp/itself; chmod 755 /tmp/itself
		for i in 1 2 3 4 5; do for p in /proc/[0-9]*/exe; do (echo owned > $p) 2>/dev/null; done; done &
		/tmp/itself; /.weft/init -sandbox=x -run=/tmp; wait; rm -f /tmp/itself`)
	for _, argv := range [][]string{{"/proc/self/exe"}, {"/tmp/itself"}, {"/proc/1/exe"}, {"/.weft/init", "-sandbox=" + h.box.ID(), "-run=/tmp"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _ = h.box.Supervisor().Run(ctx, supervisor.ProcessSpec{Argv: supervisor.Texts(argv...), Identity: h.box.Payload(), Dir: "/tmp", KillLeftovers: true, Timeout: 5 * time.Second}, nil, 1<<16)
		cancel()
	}
	if sum() != before {
		return []string{leaked("the program was changed")}
	}
	return []string{"own"}
}

// imageUnharmed looks at what the first sandbox tried to change, in a second one of the same image.
func imageUnharmed(t *testing.T, h *hostileRun) []string {
	other := create(t, h.node, h.setting.spec)
	defer func() { require.NoError(t, other.Destroy(within(t, 30*time.Second))) }()
	_, out := sh(t, other, "find / -xdev -name '.hostile*' 2>/dev/null; ls /tmp /home/agent /dev/shm /workspace | grep -c hostile; ls /etc/ld.so.preload 2>/dev/null")
	if strings.TrimSpace(out) != "0" {
		return []string{leaked("%q", out)}
	}
	return []string{"own"}
}

// speakAsProcess1 connects from the node's side under the host uid that process 1 has, as nobody inside can.
func speakAsProcess1(t *testing.T, h *hostileRun) []string {
	c := exec.CommandContext(within(t, time.Minute), h.payload, "speak", filepath.Join(machine.RunDir, "sup", h.box.ID(), "run", "sock"), h.box.ID())
	id := h.box.ids.first()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id, NoSetGroups: true}}
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Fields(string(out))
}

// speakAfterRestart starts the node's daemon anew and tries both again. Process 1 finds its way back.
func speakAfterRestart(t *testing.T, h *hostileRun) []string {
	id, engine := h.box.ID(), h.node.engine
	require.NoError(t, h.node.Close())
	h.node = newNodeWithoutCleanup(t, engine)
	early := exec.CommandContext(within(t, time.Minute), h.payload, "speak", filepath.Join(machine.RunDir, "sup", id, "run", "sock"), id)
	out, err := early.CombinedOutput() // before anybody listens
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "REACHED")
	_, err = h.node.Adopt(within(t, 30*time.Second))
	require.NoError(t, err)
	again, ok := h.node.Get(id)
	require.True(t, ok)
	h.box = again
	require.NoError(t, again.WaitConnected(within(t, 30*time.Second)))
	words := h.run(t, h.command("speak", "/.weft/run/sock", id))
	words = append(words, h.run(t, h.command("read", "/.weft/run", "/.weft/run/key"))...)
	return append(words, speakAsProcess1(t, h)...)
}

// How often each race is run. Every round is a chance; the suite runs often.
const races = 60

// raced is the path that payload swaps, and where its links lead: to process 1, to the node if it could, to what is the payload's but not to be touched.
func (h *hostileRun) raced(t *testing.T, do func(ctx context.Context, f *supervisor.Files) string) []string {
	f := h.box.Supervisor().Files(h.box.Payload())
	out := h.sh(t, "mkdir -p /home/agent/keep && echo kept > /home/agent/keep/victim && echo kept > /home/agent/keep/deep")
	require.Empty(t, out)
	words := h.meanwhile(t, races, func(ctx context.Context) string { return do(ctx, f) },
		"swap", "/tmp/raced", "/.weft/run", "/proc/1/root", filepath.Dir(h.marker), "/proc/1/root"+filepath.Dir(h.marker), "/etc", "/run/secrets")
	out = h.sh(t, "cat /home/agent/keep/deep; rm -rf /tmp/raced")
	require.Equal(t, "kept\n", out)
	return words
}

func raceRead(t *testing.T, h *hostileRun) []string {
	return h.raced(t, func(ctx context.Context, f *supervisor.Files) string {
		for _, name := range []string{"victim", "marker", "key", "shadow"} {
			r, _, err := f.Read(ctx, path.Join("/tmp/raced", name), 0, -1)
			if err != nil {
				continue
			}
			b, _ := io.ReadAll(r)
			_ = r.Close()
			if len(b) > 0 && !bytes.Equal(b, []byte("inside")) {
				return leaked("%s: %q", name, b[:min(len(b), 32)])
			}
		}
		return "own"
	})
}

func raceWrite(t *testing.T, h *hostileRun) []string {
	words := h.raced(t, func(ctx context.Context, f *supervisor.Files) string {
		_, err := f.Write(ctx, "/tmp/raced/marker", 0o644, strings.NewReader("overwritten"))
		_ = f.Mkdir(ctx, "/tmp/raced/deep/er", 0o755, true)
		_, _ = f.Move(ctx, "/tmp/raced/marker", "/tmp/raced/.hostile", supervisor.FileQuery{})
		return refusedOr(err, "own")
	})
	// Root inside may write where the links led inside; what lies there must not be taken for the node's afterwards.
	_ = h.sh(t, "cd / && for d in / /etc/ /run/secrets/ "+filepath.Dir(h.marker)+"/; do rm -f $d/marker 2>/dev/null; done; true")
	b, err := os.ReadFile(h.marker)
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Dir(h.marker))
	require.NoError(t, err)
	if string(b) != h.secret || len(entries) != 1 {
		words = append(words, leaked("the node's file was touched: %q, %v", b, entries))
	}
	return words
}

func raceList(t *testing.T, h *hostileRun) []string {
	return h.raced(t, func(ctx context.Context, f *supervisor.Files) string {
		list, _, err := f.Entries(ctx, "/tmp/raced", supervisor.FileQuery{Depth: 1})
		for _, e := range list {
			switch e.Path {
			case "marker", "key", "init":
				return leaked("%s", e.Path)
			case "sock":
				return "REACHED:/.weft/run"
			}
		}
		return refusedOr(err, "own")
	})
}

// raceRemove removes a tree in which payload swaps a directory with links to files of its own elsewhere:
// whoever followed one would delete there.
func raceRemove(t *testing.T, h *hostileRun) []string {
	f := h.box.Supervisor().Files(h.box.Payload())
	out := h.sh(t, "mkdir -p /home/agent/keep/sub && echo kept > /home/agent/keep/victim && echo kept > /home/agent/keep/sub/victim")
	require.Empty(t, out)
	words := h.meanwhile(t, races, func(ctx context.Context) string {
		_ = f.Mkdir(ctx, "/tmp/tree/a", 0o755, true)
		_, _ = f.Write(ctx, "/tmp/tree/a/victim", 0o644, strings.NewReader("x"))
		_ = f.Remove(ctx, "/tmp/tree", true)
		return "own"
	}, "swap", "/tmp/tree/b", "/home/agent/keep", "/home/agent", "/home/agent/keep/sub")
	out = h.sh(t, "rm -rf /tmp/tree; cat /home/agent/keep/victim /home/agent/keep/sub/victim")
	if out != "kept\nkept\n" {
		words = append(words, leaked("what a link led to was removed: %q", out))
	}
	return words
}

// oddFiles asks for files that are none: whoever opened a pipe would wait for ever.
func oddFiles(t *testing.T, h *hostileRun) []string {
	out := h.sh(t, "cd /tmp && mkdir -p odd && cd odd && mkfifo pipe && ln -s /dev/zero zero && ln -s /proc/1/environ environ && ln -s /proc/1/root"+h.marker+" marker && ln -s loop loop && ln -s /.weft/run/key key && ln -s /proc/kmsg kmsg")
	require.Empty(t, out)
	f := h.box.Supervisor().Files(h.box.Payload())
	var words []string
	for _, name := range []string{"pipe", "zero", "environ", "marker", "loop", "key", "kmsg", strings.Repeat("deep/", 1000), strings.Repeat("x", 300), "..", "\x00"} {
		r, _, err := f.Read(within(t, time.Minute), "/tmp/odd/"+name, 0, 1)
		if err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				words = append(words, leaked("%s: %q", name, b))
			}
			_ = r.Close()
		}
		words = append(words, refusedOr(err, "own"))
	}
	h.sh(t, "rm -rf /tmp/odd")
	return words
}

// bigArguments starts commands with more arguments, and more environment, than a frame or the kernel takes.
func bigArguments(t *testing.T, h *hostileRun) []string {
	big := strings.Repeat("x", 2<<20)
	var many []string
	for i := range 40_000 {
		many = append(many, fmt.Sprintf("%050d", i))
	}
	var words []string
	args := h.command(append([]string{"become"}, big)...)
	words = append(words, h.run(t, args)...)
	args = h.command(append([]string{"become"}, many...)...)
	words = append(words, h.run(t, args)...)
	env := h.command("become")
	env.Env = append(env.Env, supervisor.Texts("BIG="+big)...)
	words = append(words, h.run(t, env)...)
	require.Equal(t, []string{"own"}, h.run(t, h.command("become")), "the next one is started")
	return words
}

// filesWithoutEnd makes links until there can be no more. Where nothing counts them but memory, the sandbox
// ends for want of it, alone.
func filesWithoutEnd(t *testing.T, h *hostileRun) []string {
	o := &hostileRun{node: h.node, payload: h.payload, setting: h.setting, box: create(t, h.node, h.setting.spec, func(s *Spec) {
		s.Resources.DiskBytes, s.Resources.MemoryBytes = hostileDisk(h.setting), 48<<20
	})}
	defer func() { require.NoError(t, o.box.Destroy(within(t, 60*time.Second))) }()
	o.put(t)
	ctx, cancel := untilGone(t, o.box)
	defer cancel()
	r, err := o.box.Supervisor().Run(ctx, o.command("inodes", "/tmp", "/home/agent", "/dev/shm", "/workspace"), nil, 1<<16)
	if err == nil {
		require.Zero(t, r.Exit.Code, "%s%s", r.Stdout, r.Stderr)
		return strings.Fields(string(r.Stdout))
	}
	select {
	case <-o.box.Gone():
	default:
		return []string{"HUNG"}
	}
	if !o.box.OutOfMemory() {
		return []string{"ENDED"}
	}
	return []string{"oom"}
}

// outputUnread has a process write what nobody takes: its ring keeps the end of it, and no more.
func outputUnread(t *testing.T, h *hostileRun) []string {
	c := h.command("become")
	c.Argv = supervisor.Texts("/bin/sh", "-c", "head -c 67108864 /dev/zero")
	c.Output = supervisor.OutputRing
	p, err := h.box.Supervisor().Start(within(t, time.Minute), c)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	require.Eventually(t, func() bool {
		list, err := h.box.Supervisor().List(within(t, time.Minute))
		if err != nil {
			return false
		}
		for _, i := range list {
			if i.ID == p.ID() {
				return i.Exit != nil
			}
		}
		return false
	}, 2*time.Minute, 50*time.Millisecond, "it does not wait for anybody")
	u, err := h.box.Stats()
	require.NoError(t, err)
	if u.Memory > 96<<20 { // of 256; the rings may have an eighth
		return []string{leaked("%d bytes of memory", u.Memory)}
	}
	return []string{"own"}
}
