package runtime

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

var begun = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func minutes(n float64) time.Time { return begun.Add(time.Duration(n * float64(time.Minute))) }

func someLife(ttl, idle, warn time.Duration) *life {
	b := workspace.Sandbox{ID: schemas.NewID(), Run: workspace.RunSpec{TTLMS: ttl.Milliseconds(), IdleMS: idle.Milliseconds(), WarnMS: warn.Milliseconds()}}
	l := newLife(b, &activity{}, begun)
	l.active.last.Store(begun.UnixNano())
	return l
}

func TestWhatIsDue(t *testing.T) {
	used := func(l *life, at time.Time) { l.active.last.Store(at.UnixNano()) }
	for name, c := range map[string]struct {
		ttl, idle, warn time.Duration
		then            func(*life)
		at              float64
		want            due
	}{
		"idle comes first":          {time.Hour, 15 * time.Minute, 0, nil, 0, due{"idle", minutes(14), minutes(15)}},
		"use puts it off":           {time.Hour, 15 * time.Minute, 0, func(l *life) { used(l, minutes(10)) }, 11, due{"idle", minutes(24), minutes(25)}},
		"an operation goes on":      {time.Hour, 15 * time.Minute, 0, func(l *life) { l.active.open.Add(1) }, 30, due{"idle", minutes(44), minutes(45)}},
		"the end of its life":       {time.Hour, 15 * time.Minute, 0, func(l *life) { used(l, minutes(50)) }, 51, due{"timeout", minutes(59), minutes(60)}},
		"short ones, a quarter":     {time.Minute, time.Hour, 0, nil, 0, due{"timeout", minutes(0.75), minutes(1)}},
		"as asked for":              {time.Hour, 20 * time.Minute, 5 * time.Minute, nil, 0, due{"idle", minutes(15), minutes(20)}},
		"no more than half":         {time.Hour, 20 * time.Minute, time.Hour, nil, 0, due{"idle", minutes(10), minutes(20)}},
		"paused, nobody is idle":    {time.Hour, 15 * time.Minute, 0, func(l *life) { l.e.PausedAt = &begun }, 20, due{"timeout", minutes(59), minutes(60)}},
		"extended":                  {time.Hour, 15 * time.Minute, 0, func(l *life) { l.extend(minutes(180), 0); used(l, minutes(179)) }, 179, due{"timeout", minutes(179), minutes(180)}},
		"never nearer":              {time.Hour, 2 * time.Hour, 0, func(l *life) { l.extend(minutes(5), 0); used(l, begun) }, 1, due{"timeout", minutes(59), minutes(60)}},
		"an idle limit is replaced": {time.Hour, 15 * time.Minute, 0, func(l *life) { l.extend(minutes(5), 4*60_000); used(l, begun) }, 1, due{"idle", minutes(3), minutes(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := someLife(c.ttl, c.idle, c.warn)
			if c.then != nil {
				c.then(l)
			}
			require.Equal(t, c.want, utc(l.due(minutes(c.at))))
		})
	}
}

func utc(d due) due { return due{d.Reason, d.Warns.UTC(), d.Stops.UTC()} }

// Points in time are those of the journal, whenever the next process comes; but what was idle for too long while nobody could
// use it has the time of a warning left.
func TestALifeGoesOnAfterARestart(t *testing.T) {
	b := workspace.Sandbox{ID: schemas.NewID(), Run: workspace.RunSpec{TTLMS: time.Hour.Milliseconds(), IdleMS: (20 * time.Minute).Milliseconds()}}
	e := newLife(b, &activity{}, begun).entry(begun)
	e.UsedAt, e.ExpiresAt = minutes(5), minutes(70)
	l := oldLife(b, e, &activity{}, minutes(10))
	require.Equal(t, due{"idle", minutes(24), minutes(25)}, utc(l.due(minutes(10))))
	l = oldLife(b, e, &activity{}, minutes(40))
	require.Equal(t, due{"idle", minutes(40), minutes(41)}, utc(l.due(minutes(40))))
	l = oldLife(b, e, &activity{}, minutes(69.5))
	require.Equal(t, due{"timeout", minutes(69), minutes(70)}, utc(l.due(minutes(69.5))))
	require.Equal(t, lifeEntry{}, boxEntry{}.Life)
	l = lifeOf(boxEntry{Sandbox: b, StartedAt: minutes(3)}, &activity{}, minutes(4)) // as an earlier release wrote it
	require.Equal(t, minutes(63), l.entry(minutes(4)).ExpiresAt)
}

func TestWhatCountsAsUse(t *testing.T) {
	a := &activity{}
	counts := func(line string) bool {
		a.last.Store(0)
		_, _, _ = a.verbs(func(l []byte) ([]byte, int, error) { return l, 0, nil })([]byte(line))
		return a.last.Load() != 0
	}
	for _, line := range []string{"PUB a 3\r\n", "hpub a 1 3\r\n", "SUB a 1\r\n", "UNSUB 1\r\n", "MSG a 1 3\r\n", "HMSG a 1 1 3\r\n"} {
		require.True(t, counts(line), line)
	}
	for _, line := range []string{"PING\r\n", "PONG\r\n", "+OK\r\n", "-ERR 'x'\r\n", "INFO {}\r\n"} {
		require.False(t, counts(line), line)
	}
}

// A stream of which only the end is kept shows no part of a secret, wherever the cut is.
func TestLastWordsShowNoPartOfASecret(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	masked := func(values []string) func() Scrubber { return func() Scrubber { return &masker{values: values} } }
	for shift := range 2 * len(secret) {
		w := newLastWords(masked, []string{secret})
		p := w.begin("p", []string{"print"})
		p.add(supervisor.Stdout, []byte(strings.Repeat("x", shift)))
		for range 700 {
			p.add(supervisor.Stdout, []byte(secret+"\x1b[2J!"))
		}
		out := w.all(nil)[0].Stdout
		require.LessOrEqual(t, len(out), tailBytes)
		require.Greater(t, len(out), tailBytes/8)
		require.NotContains(t, out, "\x1b")
		rest := strings.ReplaceAll(strings.ReplaceAll(out, "***", ""), "[2J!", "")
		require.Empty(t, strings.Trim(rest, "*[2J!"), "shift %d", shift)
	}
	// Bounded, whatever is in it; the newest of many processes stay, those that run before those that have ended.
	w := newLastWords(masked, nil)
	for i := range 30 {
		p := w.begin(string(rune('A'+i)), []string{strings.Repeat("a", 10_000)})
		p.add(supervisor.Stderr, []byte(strings.Repeat("<\u2028\"", 100_000)))
		p.add(supervisor.Stdout, []byte(strings.Repeat("<\u2028\"", 100_000)))
		if i > 0 {
			p.end(workspace.Exit{})
		}
	}
	out := w.all([]byte("init says"))
	require.Len(t, out, maxTails, "no room for what process 1 says")
	require.Equal(t, "A", out[0].Process)
	b, err := json.Marshal(out)
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), workspace.MaxLastOutput)
	require.Empty(t, newLastWords(masked, nil).all(nil))
	require.Equal(t, []workspace.LastOutput{{Stderr: "init says"}}, newLastWords(masked, nil).all([]byte("init says")))
}

func TestWhatTheKernelHasKilled(t *testing.T) {
	var o oomWatch
	require.False(t, o.is(0, begun))
	require.True(t, o.is(1, begun), "since the last look")
	o.look(1, begun)
	require.True(t, o.is(1, begun.Add(time.Second)), "just before it")
	require.False(t, o.is(1, begun.Add(time.Hour)), "long ago")
}

// withSecret has the sandbox use a secret that the fake secrets service gives to this node.
func withSecret(n *node) func(*workspace.Sandbox) {
	return func(b *workspace.Sandbox) {
		b.NodeKey, b.Run.Secrets = n.s.keyPublic, []workspace.SecretUse{{Name: "token", As: "file"}}
	}
}

const slow = 40 * time.Second

// Nobody uses the sandbox: it is warned, its use makes the warning void, it is warned again, told, and stopped; what it said
// last is kept.
func TestASandboxThatNobodyUses(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	w.with(func() { w.values = secrets.Issued{Scrub: []string{"hunter2secret"}} })
	b := w.createBox(t, withSecret(n), func(b *workspace.Sandbox) { b.Run.IdleMS, b.Run.WarnMS, b.Run.GraceMS = 20*60_000, 5*60_000, 20_000 })
	req := shell("trap 'echo farewell, hunter2secret; exit 5' TERM; echo ready; while :; do read -t 1 x; done; echo; sleep 0.05")
	req.Argv[0] = "/bin/bash"
	req.PTY, req.Rows, req.Cols = true, 24, 80 // a terminal left open is no use
	ctx := meshtest.Context(t)
	s, err := stream.Open(ctx, alice, sbx(t, b, runtime.OpExec), req)
	require.NoError(t, err)
	defer s.Close()
	readUntil(t, s, "ready\r\n") // all of it: more would be use

	i := n.boxOf(t, b.ID)
	var last int64
	require.Eventually(t, func() bool { // what the stream's two sides still tell one another would be use, too
		before := last
		last = i.life.active.last.Load()
		return last == before
	}, slow, 250*time.Millisecond)
	unused := func(since time.Duration) { // as if so much time had passed
		i.life.active.last.Store(time.Now().Add(-since).UnixNano())
		require.NoError(t, i.do(ctx, func(context.Context) error { return nil }), "it looks again")
	}
	warned := func(count int, void bool) func() bool {
		return func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.warned) == count && (w.warned[count-1].Warning == nil) == void
		}
	}
	unused(11 * time.Minute) // of 20: not yet
	unused(16 * time.Minute)
	require.Eventually(t, warned(1, false), slow, 5*time.Millisecond)
	w.with(func() { require.Equal(t, "idle", w.warned[0].Warning.Reason) })
	in, err := mesh.Request[runtime.Inspect](ctx, alice, sbx(t, b, runtime.OpInspect), workspace.Empty{})
	require.NoError(t, err)
	require.Equal(t, "idle", in.Warning.Reason)
	require.NoError(t, w.askNode(t, runtime.OpSandboxExtend, runtime.SandboxExtend{ID: b.ID, ExpiresAt: time.Now().Add(20 * time.Hour), IdleMS: 3_600_000}))
	require.Eventually(t, warned(2, true), slow, 5*time.Millisecond, "it was used")
	in, err = mesh.Request[runtime.Inspect](ctx, alice, sbx(t, b, runtime.OpInspect), workspace.Empty{})
	require.NoError(t, err)
	require.Nil(t, in.Warning)
	require.True(t, in.ExpiresAt.After(time.Now().Add(19*time.Hour)))
	require.True(t, in.IdleAt.After(time.Now().Add(50*time.Minute)))
	unused(61 * time.Minute)
	end := w.endOf(t, b.ID)
	require.Equal(t, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "idle"}, end.Exit)
	require.Len(t, end.LastOutput, 1)
	said := end.LastOutput[0]
	require.Contains(t, said.Stdout, "ready\nfarewell, ***\n")
	require.Equal(t, "/bin/bash", said.Argv[0])
	require.Equal(t, 5, said.Exit.Code)
	n.empty(t)
	require.True(t, fault.Is(w.askNode(t, runtime.OpSandboxExtend, runtime.SandboxExtend{ID: b.ID, ExpiresAt: time.Now()}), fault.NotFound))
}

// empty waits until the node holds nothing.
func (n *node) empty(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, slow, 5*time.Millisecond)
}

func readUntil(t testing.TB, s *stream.Session, want string) {
	t.Helper()
	var out []byte
	for b := make([]byte, 100); !strings.Contains(string(out), want); {
		k, err := s.Channel(stream.Stdout).Read(b)
		require.NoError(t, err)
		out = append(out, b[:k]...)
	}
}

// boxOf finds an interactive sandbox on the node.
func (n *node) boxOf(t testing.TB, id string) *interactive {
	t.Helper()
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	require.Contains(t, n.s.serving, id)
	return n.s.serving[id]
}

// A paused sandbox stands still whatever renewals say, also over a restart of the node's process; it goes on with credentials
// that hold, and can be ended as it is.
func TestAPausedSandbox(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	w.with(func() {
		w.values = secrets.Issued{Files: []secrets.File{{Name: "token", Value: []byte("first-token")}}, Env: map[string]string{"T": "first"}, VaultToken: "tok-1"}
	})
	b := w.createBox(t, withSecret(n))
	pause := func() {
		require.NoError(t, w.askNode(t, runtime.OpSandboxPause, runtime.SandboxRef{ID: b.ID}))
	}
	still := func() {
		t.Helper()
		frozen, err := n.boxOf(t, b.ID).box.Paused()
		require.NoError(t, err)
		require.True(t, frozen)
		_, err = stream.Open(meshtest.Context(t), alice, sbx(t, b, runtime.OpExec), shell("true"))
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		require.ErrorContains(t, err, "weft sandbox resume")
		in, err := mesh.Request[runtime.Inspect](meshtest.Context(t), alice, sbx(t, b, runtime.OpInspect), workspace.Empty{})
		require.NoError(t, err)
		require.True(t, in.Paused)
		require.Nil(t, in.IdleAt)
	}
	pause()
	pause()
	still()

	// The claim runs out and is renewed again: that thaws what was frozen for it, and nothing else.
	h := n.boxOf(t, b.ID).h
	frozen := func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.frozen }
	w.with(func() { w.lease = 2 * time.Second })
	require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return time.Until(h.deadline) < 3*time.Second }, slow, 5*time.Millisecond)
	w.with(func() { w.down = true })
	require.Eventually(t, frozen, slow, 5*time.Millisecond)
	w.with(func() { w.down, w.lease = false, 10*time.Second })
	require.Eventually(t, func() bool { return !frozen() }, slow, 5*time.Millisecond)
	still()
	var renewed int
	w.with(func() { renewed = w.renewed[b.ID] })

	n.stop()
	n = startNode(t, meshConfig(m.Node("node-1"), nil))
	require.Eventually(t, func() bool { return n.boxOf(t, b.ID).h.renewable() }, slow, time.Millisecond)
	still()
	w.with(func() {
		require.Equal(t, renewed, w.renewed[b.ID], "a paused machine holds no leases")
		w.leases[b.ID] = "expired"
		w.values = secrets.Issued{Files: []secrets.File{{Name: "token", Value: []byte("second-token")}}, Env: map[string]string{"T": "second"}, VaultToken: "tok-2"}
		w.denied["issue"] = fault.New(fault.Unavailable, "not now")
	})
	err := w.askNode(t, runtime.OpSandboxResume, runtime.SandboxRef{ID: b.ID})
	require.True(t, fault.Is(err, fault.Unavailable), "without credentials it does not go on: %v", err)
	still()
	w.with(func() { delete(w.denied, "issue") })
	require.NoError(t, w.askNode(t, runtime.OpSandboxResume, runtime.SandboxRef{ID: b.ID}))
	require.NoError(t, w.askNode(t, runtime.OpSandboxResume, runtime.SandboxRef{ID: b.ID}))
	req := shell(`cat /run/secrets/token; echo; echo $T; exec 3<>/dev/tcp/127.0.0.1/8200; printf 'GET /v1/x HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	req.Argv[0] = "/bin/bash"
	_, out, _ := execute(t, alice, b, req, "")
	require.Contains(t, out, "second-token\nsecond\n")
	require.Contains(t, out, "tok-2")

	pause()
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: b.ID, Reason: "killed", By: "alice"}))
	require.Equal(t, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "killed", By: "alice"}, w.endOf(t, b.ID).Exit)
	n.empty(t)
	n.stop()
}

// Its time to live is over, also where it is paused; and one whose process 1 is killed is no victim of its memory limit.
func TestHowSandboxesEnd(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	old := w.createBox(t)
	_, _, _ = execute(t, alice, old, shell("echo said"), "")
	require.NoError(t, w.askNode(t, runtime.OpSandboxPause, runtime.SandboxRef{ID: old.ID}))
	i := n.boxOf(t, old.ID)
	i.life.mu.Lock()
	i.life.e.ExpiresAt = time.Now() // as if a day had passed
	i.life.mu.Unlock()
	if err := i.do(meshtest.Context(t), func(context.Context) error { return nil }); err != nil { // it looks again
		require.Equal(t, fault.NotFound, fault.CodeOf(err), "or has just looked")
	}
	end := w.endOf(t, old.ID)
	require.Equal(t, "timeout", end.Exit.Reason)
	require.Len(t, end.LastOutput, 1)
	require.Equal(t, "said\n", end.LastOutput[0].Stdout)
	require.Equal(t, []string{"/bin/sh", "-c", "echo said"}, end.LastOutput[0].Argv)

	gone := w.createBox(t)
	s, err := stream.Open(meshtest.Context(t), alice, sbx(t, gone, runtime.OpExec), shell("echo still here >&2; sleep 1000"))
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = io.ReadFull(s.Channel(stream.Stderr), b)
	require.NoError(t, err)
	require.NoError(t, n.boxOf(t, gone.ID).box.Stop(meshtest.Context(t)))
	end = w.endOf(t, gone.ID)
	require.Equal(t, workspace.Exit{Code: -1, Reason: "exited"}, end.Exit)
	require.Equal(t, "still here\n", end.LastOutput[len(end.LastOutput)-1].Stderr)
	_ = s.Close()
	n.empty(t)
}
