package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// hostileSetting is what is attacked: a level, with a payload that is nobody or root of its own range.
type hostileSetting struct {
	level string
	root  bool // root inside, and a root file system that it may write
}

func (a hostileSetting) name() string {
	if a.root {
		return a.level + "-root"
	}
	return a.level
}

// spec is a sandbox of the setting.
func (a hostileSetting) spec(s *Spec) {
	s.Level = a.level
	if a.root {
		s.Isolation.RootInside, s.Isolation.WritableRoot = true, true
	}
}

// hostileRun is one setting under attack: its sandbox, and what the attempts look for on the node.
type hostileRun struct {
	node    *Node
	box     *Sandbox
	setting hostileSetting
	payload string // the program, on the node
	secret  string // what no attempt may see
	marker  string // the file that has it
	words   map[string][]string
}

// hostileIn is where the payload's program lies in a sandbox.
const hostileIn = "/tmp/hostile"

// TestHostile makes every attempt of hostileCases on every level that this node has, as nobody and as root inside.
func TestHostile(t *testing.T) {
	machine.Need(t)
	dir, err := os.MkdirTemp("/var/tmp", "weft-open-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755), "a user of the node's who is nobody else runs it, too")
	payload := filepath.Join(dir, "hostile")
	require.NoError(t, nodetest.Build(payload, "./testdata/hostile"))
	for _, level := range []string{workspace.LevelStandard, workspace.LevelHigh} {
		for _, root := range []bool{false, true} {
			setting := hostileSetting{level, root}
			t.Run(setting.name(), func(t *testing.T) {
				attack(t, payload, setting)
			})
		}
	}
}

func attack(t *testing.T, payload string, setting hostileSetting) {
	engine := machine.Engine(t)
	h := prepareHostile(t, newNodeWithoutCleanup(t, engine), payload)
	h.setting = setting
	t.Cleanup(func() { // of the node as it is then: one attempt starts it anew
		for _, s := range h.node.List() {
			require.NoError(t, s.Destroy(context.WithoutCancel(t.Context())))
		}
		require.NoError(t, h.node.Close())
	})
	for _, filled := range []bool{false, true} {
		h.box = create(t, h.node, setting.spec, func(s *Spec) {
			s.Resources.PIDs, s.Resources.MemoryBytes = 128, 256<<20
			if filled {
				s.Resources.DiskBytes, s.Resources.PIDs = hostileDisk(setting), 48
			}
		})
		h.words["{id}"] = []string{h.box.ID()}
		h.put(t)
		got := h.tryAll(t, filled)
		for _, c := range hostileCases {
			if c.filled != filled || c.seen != "" {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				switch {
				case setting.apart(c):
					got[c.name] = h.tryApart(t, c)
				case c.node != nil:
					got[c.name] = c.node(t, h)
				}
				require.NotEmpty(t, got[c.name], "the attempt said nothing")
				for _, w := range got[c.name] {
					require.True(t, c.refused(setting, w), "%s: %s", c.what, got[c.name])
				}
			})
		}
		// It is all the same to process 1, and to the node.
		out := h.sh(t, "echo as before")
		require.Equal(t, "as before\n", out)
		require.NoError(t, h.box.Destroy(within(t, 30*time.Second)))
	}
	b, err := os.ReadFile(h.marker)
	require.NoError(t, err)
	require.Equal(t, h.secret, string(b))
	requireNothing(t, h.node)
}

func (c hostileCase) refusal(level string) string {
	if level == workspace.LevelHigh && c.high != "" {
		return c.high
	}
	return c.standard
}

// refused says whether a word is one that the setting may answer. Whom root inside only does good or harm to itself
// gets it: what may be reached is stated for each attempt, by the beginnings of its names.
func (c hostileCase) refused(a hostileSetting, word string) bool {
	if slices.Contains(strings.Fields(c.refusal(a.level)), word) {
		return true
	}
	if !a.root {
		return false
	}
	more := c.root
	if a.level == workspace.LevelHigh {
		more += " " + c.rootHigh
	}
	for _, w := range strings.Fields(more) {
		if may, ok := strings.CutPrefix(w, "may:"); ok && strings.HasPrefix(word, "REACHED:"+may) || w == word {
			return true
		}
	}
	return false
}

// apart says that the attempt is made in a sandbox of its own.
func (a hostileSetting) apart(c hostileCase) bool {
	return a.level == workspace.LevelHigh && (a.root && c.apart || c.apartHigh)
}

// tryApart makes an attempt in a sandbox of its own, which may end by it.
func (h *hostileRun) tryApart(t *testing.T, c hostileCase) []string {
	o := &hostileRun{node: h.node, payload: h.payload, setting: h.setting, words: h.words, box: create(t, h.node, h.setting.spec, func(s *Spec) { s.Resources.PIDs = 48 })}
	defer func() { require.NoError(t, o.box.Destroy(within(t, 60*time.Second))) }()
	o.put(t)
	type result struct {
		supervisor.Result
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := o.box.Supervisor().Run(within(t, 2*time.Minute), o.command(o.expand(c.try)...), nil, 1<<20)
		done <- result{r, err}
	}()
	select {
	case r := <-done:
		if r.err == nil {
			return strings.Fields(string(r.Stdout))
		}
		select {
		case <-o.box.Gone():
		case <-time.After(10 * time.Second):
			require.NoError(t, r.err)
		}
	case <-o.box.Gone():
		require.NoError(t, o.box.Destroy(within(t, 60*time.Second)))
		<-done
	}
	return []string{"ends"}
}

// untilGone ends with the sandbox.
func untilGone(t *testing.T, s *Sandbox) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(within(t, 5*time.Minute))
	go func() {
		select {
		case <-s.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// hostileDisk is little, and room for the program itself where that lies on the same disk.
func hostileDisk(a hostileSetting) int64 {
	if a.root {
		return 12 << 20
	}
	return 8 << 20
}

// prepareHostile makes what the attempts look for: a file, ports, sockets, shared memory, a queue of the node.
func prepareHostile(t *testing.T, n *Node, payload string) *hostileRun {
	h := &hostileRun{node: n, payload: payload, secret: schemas.NewID(), words: map[string][]string{}}
	dir, err := os.MkdirTemp("/var/tmp", "weft-open-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777), "only the sandbox keeps it from there")
	h.marker = filepath.Join(dir, "marker")
	require.NoError(t, os.WriteFile(h.marker, []byte(h.secret), 0o666))
	tcp, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tcp.Close()) })
	port := tcp.Addr().(*net.TCPAddr).Port
	abstract := "@weft-" + h.secret
	unixl, err := net.Listen("unix", abstract)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unixl.Close()) })
	key := 0x77000000 + os.Getpid()
	shm, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	require.NoError(t, err)
	t.Cleanup(func() { _, err := unix.SysvShmCtl(shm, unix.IPC_RMID, nil); require.NoError(t, err) })
	queue := makeQueue(t, "weft-"+h.secret)
	var addresses []string
	ifs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range ifs {
		if ip := a.(*net.IPNet).IP; !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			addresses = append(addresses, "tcp:"+net.JoinHostPort(ip.String(), strconv.Itoa(port)))
		}
	}
	if len(addresses) == 0 {
		addresses = []string{"tcp:192.0.2.1:" + strconv.Itoa(port)}
	}
	h.words = map[string][]string{
		"{marker}": {h.marker}, "{secret}": {h.secret}, "{port}": {strconv.Itoa(port)}, "{abstract}": {abstract}, "{key}": {strconv.Itoa(key)}, "{queue}": {queue},
		"{addresses}": addresses, "{pids}": {strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())}, "{containerd}": {n.engine.Socket()},
		"{socket}": {filepath.Join(machine.RunDir, "sup")},
	}
	return h
}

// makeQueue makes a POSIX message queue that everybody on the node may open.
func makeQueue(t *testing.T, name string) string {
	p, err := unix.BytePtrFromString(name)
	require.NoError(t, err)
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), unix.O_CREAT|unix.O_RDWR, 0o666, 0, 0, 0)
	require.Zero(t, e)
	require.NoError(t, unix.Close(int(fd)))
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(p)), 0, 0) })
	return name
}

// put brings the payload's program into the sandbox, the way a user would.
func (h *hostileRun) put(t *testing.T) {
	f, err := os.Open(h.payload)
	require.NoError(t, err)
	defer f.Close()
	_, err = h.box.Supervisor().Files(h.box.Payload()).Write(within(t, 60*time.Second), hostileIn, 0o755, f)
	require.NoError(t, err)
}

// tryAll makes the payload's own attempts, one after the other, in one go.
func (h *hostileRun) tryAll(t *testing.T, filled bool) map[string][]string {
	type attempt struct {
		Name string   `json:"name"`
		Argv []string `json:"argv"`
		Got  string   `json:"got"`
		MS   int64    `json:"ms"`
	}
	var as []attempt
	for _, c := range hostileCases {
		if c.filled == filled && c.try != nil && !h.setting.apart(c) {
			as = append(as, attempt{Name: c.name, Argv: h.expand(c.try)})
		}
	}
	in, err := json.Marshal(as)
	require.NoError(t, err)
	ctx, cancel := untilGone(t, h.box)
	defer cancel()
	r, err := h.box.Supervisor().Run(ctx, h.command("run"), in, 4<<20)
	require.NoError(t, err)
	require.Zero(t, r.Exit.Code, "%s%s", r.Stdout, r.Stderr)
	got := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(r.Stdout)); dec.More(); {
		var a attempt
		require.NoError(t, dec.Decode(&a))
		got[a.Name] = strings.Fields(a.Got)
		if a.MS > 1000 {
			t.Logf("%s took %d ms", a.Name, a.MS)
		}
	}
	return got
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// expand replaces {name} by what was prepared; one that stands alone may become several arguments.
func (h *hostileRun) expand(args []string) []string {
	var out []string
	for _, a := range args {
		if w, ok := h.words[a]; ok {
			out = append(out, w...)
			continue
		}
		out = append(out, placeholder.ReplaceAllStringFunc(a, func(p string) string { return h.words[p][0] }))
	}
	return out
}

func (h *hostileRun) command(argv ...string) supervisor.ProcessSpec {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + HomePath}
	if h.setting.root { // what it is, and no more
		caps := uint64(0)
		for _, c := range capNumbers(workspace.RootCapabilities) {
			caps |= 1 << c
		}
		env = append(env, fmt.Sprintf("HOSTILE_ROOT=%x", caps))
	}
	return supervisor.ProcessSpec{
		Argv: supervisor.Texts(append([]string{hostileIn}, argv...)...), Identity: h.box.Payload(), Dir: "/tmp",
		Env: supervisor.Texts(env...), KillLeftovers: true,
	}
}

// sh runs a script as the payload's user.
func (h *hostileRun) sh(t *testing.T, script string) string {
	run := sh
	if h.setting.root {
		run = asRoot
	}
	_, out := run(t, h.box, script)
	return out
}

// run gives the words that one verb says.
func (h *hostileRun) run(t *testing.T, spec supervisor.ProcessSpec) []string {
	r, err := h.box.Supervisor().Run(within(t, time.Minute), spec, nil, 1<<20)
	if err != nil || r.Exit.Reason == supervisor.ReasonFailed {
		return []string{"refused"}
	}
	require.Zero(t, r.Exit.Code, "%s%s", r.Stdout, r.Stderr)
	return strings.Fields(string(r.Stdout))
}

// meanwhile runs the payload's verb for ever, does what do does some times, and gives all its words.
func (h *hostileRun) meanwhile(t *testing.T, times int, do func(ctx context.Context) string, verb ...string) []string {
	p, err := h.box.Supervisor().Start(within(t, 30*time.Second), h.command(verb...))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	var words []string
	ctx := within(t, 2*time.Minute)
	for range times {
		if w := do(ctx); !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	require.NoError(t, p.Stop(ctx, 0))
	_, err = p.Wait(ctx)
	require.NoError(t, err)
	return words
}

// refusedOr is refused where err says so, else w; an error of another kind is told as it is.
func refusedOr(err error, w string) string {
	if err == nil {
		return w
	}
	return "refused"
}

func leaked(format string, args ...any) string { return "LEAKED:" + fmt.Sprintf(format, args...) }
