package sandbox

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func testMold() Mold {
	return Mold{Pool: workspace.PoolRef{Tenant: "acme", Workspace: "-", Name: "base"}, Image: "base"}
}

// patientNode waits for answers as long as a machine with much to do may need.
func patientNode(t testing.TB) *Node {
	n := newNode(t, machine.Engine(t))
	n.cfg.Answer = time.Minute
	return n
}

func createBlank(t testing.TB, n *Node) *Sandbox {
	t.Helper()
	m, err := n.CreateBlank(within(t, time.Minute), testMold())
	require.NoError(t, err)
	return m
}

// What a claim changes is there at once, inside and outside.
func TestBindMakesABlankSandboxSomebodys(t *testing.T) {
	n := patientNode(t)
	m := createBlank(t, n)
	require.Equal(t, []*Sandbox{m}, n.Members())
	process1 := m.init

	spec := testSpec()
	spec.Files, spec.Task, spec.Attempt = true, schemas.NewID(), 3
	spec.Resources = workspace.Resources{CPUMillis: 200, MemoryBytes: 48 << 20, PIDs: 100}
	s, err := n.Bind(within(t, 30*time.Second), m, spec)
	require.NoError(t, err)
	require.Equal(t, process1, s.init, "nothing was started")
	require.Empty(t, n.Members())
	got, ok := n.Get(spec.ID)
	require.True(t, ok)
	require.Same(t, s, got)
	_, ok = n.Get(m.ID())
	require.False(t, ok)
	require.Equal(t, spec.ID, s.ID())
	require.Equal(t, "demo", s.Labels()["dev.weft/workspace"])
	require.Equal(t, spec.Task, s.Labels()["dev.weft/task"])

	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false))
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}))
	require.NoError(t, s.WriteInput([]byte(`{"n":1}`)))
	_, out := sh(t, s, "hostname; cat /etc/hostname /etc/hosts /workspace/a.txt /run/secrets/token /run/weft/input.json; echo; awk '/processes/{print $3}' /proc/self/limits; touch /workspace/b && stat -c %u /workspace/b")
	require.Equal(t, "planner\nplanner\n127.0.0.1\tlocalhost planner\n::1\tlocalhost\nhello\nhunter2{\"n\":1}\n100\n1000\n", out)
	require.EqualValues(t, diskUID, ownerOn(t, dir+"/b"))
	limits, err := s.group.Limits()
	require.NoError(t, err)
	require.Equal(t, s.limits(Standard), limits)
	exit, _ := sh(t, s, "tail /dev/zero")
	require.Equal(t, 137, exit.Code, "the memory is that of the claim")
	require.True(t, s.OutOfMemory())

	_, err = n.Bind(within(t, 10*time.Second), m, testSpec())
	require.True(t, fault.Is(err, fault.Conflict), "%v", err)
	require.True(t, fault.Is(m.Destroy(within(t, 10*time.Second)), fault.Conflict), "a pool can't destroy what it gave away")
	_, out = sh(t, s, "echo alive")
	require.Equal(t, "alive\n", out)
	require.NoError(t, n.Destroy(within(t, 20*time.Second), spec.ID))
	requireNothing(t, n)
}

// Without files, with more than it waited with; and what it can't become.
func TestBindGivesMoreAndRefusesWhatDoesNotFit(t *testing.T) {
	n := patientNode(t)
	m := createBlank(t, n)
	for what, change := range map[string]func(*Spec){
		"image":  func(s *Spec) { s.Image = "other" },
		"disk":   func(s *Spec) { s.Resources.DiskBytes = 4 << 20 },
		"root":   func(s *Spec) { s.Isolation.WritableRoot = true },
		"names":  func(s *Spec) { s.Principal = "no name" },
		"little": func(s *Spec) { s.Resources.MemoryBytes = 1 },
	} {
		spec := testSpec()
		change(&spec)
		_, err := n.Bind(within(t, 10*time.Second), m, spec)
		require.True(t, fault.Is(err, fault.Invalid), "%s: %v", what, err)
	}
	require.Len(t, n.Members(), 1, "it still waits")
	spec := testSpec()
	spec.Resources = workspace.Resources{MemoryBytes: 1 << 30, PIDs: 1000, CPUMillis: 2000, DiskBytes: 2 << 30}
	s, err := n.Bind(within(t, 30*time.Second), m, spec)
	require.NoError(t, err)
	_, out := sh(t, s, "head -c 600m /dev/zero > /workspace/big && stat -c '%s %u' /workspace/big; awk '/processes/{print $3}' /proc/self/limits; touch /x 2>&1")
	require.Contains(t, out, fmt.Sprintf("%d 1000\n1000\n", 600<<20), "all of it is in memory, and that is the claim's")
	require.Contains(t, out, "Read-only file system")
}

// A member with a root of its own: a claim finds that pristine, and its workspace is a directory of it.
func TestBindWithAWritableRoot(t *testing.T) {
	n := patientNode(t)
	mold, spec := testMold(), testSpec()
	mold.Isolation = workspace.Isolation{WritableRoot: true, RootInside: true}
	mold.Resources.DiskBytes = 64 << 20
	m, err := n.CreateBlank(within(t, time.Minute), mold)
	require.NoError(t, err)
	spec.Isolation, spec.Resources.DiskBytes = mold.Isolation, 128<<20
	_, err = n.Bind(within(t, 10*time.Second), m, spec)
	require.True(t, fault.Is(err, fault.Invalid), "its disk is as large as it is: %v", err)
	spec.Resources.DiskBytes = 64 << 20
	s, err := n.Bind(within(t, 30*time.Second), m, spec)
	require.NoError(t, err)
	r, err := s.Supervisor().Run(within(t, 20*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", "id -u; hostname; cat /etc/hostname; touch /usr/new /workspace/new && stat -c %u /workspace/new"),
		Dir:  "/", Identity: s.Payload(), Env: supervisor.Texts("PATH=/usr/bin:/bin"),
	}, nil, 1<<20)
	require.NoError(t, err)
	require.Equal(t, "0\nplanner\nplanner\n0\n", string(r.Stdout), "%s", r.Stderr)
	mold.Isolation.Seccomp = "none"
	_, err = n.CreateBlank(within(t, time.Minute), mold)
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
}

// A thousand claims at once, from two nodes that know nothing of each other, for a few sandboxes: each is got once.
func TestAThousandClaimsRaceForAFewSandboxes(t *testing.T) {
	engine := machine.Engine(t)
	n, other := newNode(t, engine), newNodeWithoutCleanup(t, engine)
	n.cfg.Answer, other.cfg.Answer = time.Minute, time.Minute
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	members := make([]*Sandbox, 6)
	var wg sync.WaitGroup
	for i := range members {
		wg.Go(func() { members[i] = createBlank(t, n) })
	}
	wg.Wait()
	var mu sync.Mutex
	got := map[string][]*Sandbox{}
	start := make(chan struct{})
	for i := range 1000 {
		node := n
		if i%2 == 1 {
			node = other // no mutex is common to both
		}
		wg.Go(func() {
			<-start
			for j := range members {
				m := members[(i+j)%len(members)]
				s, err := node.Bind(t.Context(), m, testSpec())
				if err == nil {
					mu.Lock()
					got[s.body.id] = append(got[s.body.id], s)
					mu.Unlock()
					return
				}
				if !fault.Is(err, fault.Conflict) {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	require.Len(t, got, len(members))
	for body, winners := range got {
		require.Len(t, winners, 1)
		require.Equal(t, winners[0].ID(), n.named(body), "the record says the same")
		_, out := sh(t, winners[0], "echo mine > /tmp/x; cat /tmp/x")
		require.Equal(t, "mine\n", out)
		require.NoError(t, winners[0].Destroy(within(t, 20*time.Second)))
	}
	for _, m := range members {
		n.drop(m) // those that the other node got
	}
	requireNothing(t, n)
}

// A member whose process 1 is stopped, or dead, is not handed over, and nothing of it is left.
func TestAMemberThatDoesNotAnswerIsNotHandedOver(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	n.cfg.Answer = time.Second
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		m := createBlank(t, n)
		require.NoError(t, m.init.Signal(sig))
		if sig == syscall.SIGKILL {
			<-m.Gone()
		}
		spec := testSpec()
		_, err := n.Bind(within(t, 60*time.Second), m, spec)
		require.Error(t, err, "%v", sig)
		require.False(t, fault.Is(err, fault.Conflict), "%v", err)
		_, ok := n.Get(spec.ID)
		require.False(t, ok)
		requireNothing(t, n)
	}
}

// The node's process starts anew: unclaimed members wait on, claimed ones keep their names, and one that was
// claimed without being bound is never anybody else's.
func TestMembersAreAdopted(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	n.cfg.Answer = time.Minute
	waiting, taken, half, leaving := createBlank(t, n), createBlank(t, n), createBlank(t, n), createBlank(t, n)
	spec, halfSpec := testSpec(), testSpec()
	spec.Task, spec.Attempt = schemas.NewID(), 2
	s, err := n.Bind(within(t, 30*time.Second), taken, spec)
	require.NoError(t, err)
	require.NoError(t, n.claim(half.body.id, record{Spec: &halfSpec}), "as a process does that dies right after it")
	require.NoError(t, leaving.withdraw())
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())

	n = patientNode(t)
	adopted, err := n.Adopt(within(t, 30*time.Second))
	require.NoError(t, err)
	require.Len(t, adopted, 3)
	again, ok := n.Get(spec.ID)
	require.True(t, ok)
	require.Equal(t, s.Spec(), again.Spec())
	require.Equal(t, s.Labels(), again.Labels())
	_, ok = n.Get(halfSpec.ID)
	require.True(t, ok, "known by the name under which it was claimed")
	members := n.Members()
	require.Len(t, members, 1)
	mold, fingerprint, ok := members[0].Blank()
	require.True(t, ok)
	require.Equal(t, waiting.blank.mold, mold)
	now, err := n.Fingerprint(within(t, 10*time.Second), mold)
	require.NoError(t, err)
	require.Equal(t, now, fingerprint)
	n.cfg.CLI = machine.Init // any other program
	other, err := n.Fingerprint(within(t, 10*time.Second), mold)
	require.NoError(t, err)
	require.NotEqual(t, fingerprint, other, "a member is known to have what the node would no longer put in")
	got, err := n.Bind(within(t, 30*time.Second), members[0], testSpec())
	require.NoError(t, err)
	_, out := sh(t, got, "hostname")
	require.Equal(t, "planner\n", out)
	removed, err := n.Reconcile(within(t, 60*time.Second), func(string) bool { return false })
	require.NoError(t, err)
	require.Len(t, removed.Sandboxes, 1)
	require.Contains(t, removed.Sandboxes, leaving.ID())
	require.NoError(t, n.Destroy(within(t, 20*time.Second), halfSpec.ID))
	require.NoError(t, n.Destroy(within(t, 20*time.Second), spec.ID))
	require.NoError(t, got.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)
}
