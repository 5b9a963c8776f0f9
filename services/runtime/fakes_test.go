package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// world stands for the other services. It keeps their contracts where this service depends on them:
// fencing by attempt, answers that are the same when asked again, sealed credentials. Its state
// outlives the node's process in the tests that restart it.
type world struct {
	t   testing.TB
	dir string

	mu        sync.Mutex
	tasks     map[string]*task
	queue     []workspace.QueueItem
	wake      chan struct{}
	down      bool // the manager does not answer
	ended     []runtime.SandboxEnded
	warned    []runtime.SandboxWarned
	boxes     map[string]workspace.Sandbox
	beats     []workspace.Heartbeat
	cleaned   []workspace.Cleaned
	pools     []workspace.WantedPool
	overlays  map[string]*overlay
	leases    map[string]string // by sandbox: active, or why it was revoked
	issued    int
	renewed   map[string]int // by sandbox
	values    secrets.Issued
	key       nkeys.KeyPair
	chunks    map[string][]Chunk
	failOut   int // so many publishes fail
	lease     time.Duration
	held      [][]string
	denied    map[string]error // operation → its error
	claimSeen int
	revoked   []string
	manager   *mesh.Conn // on the mesh: who publishes to the queue
	minter    func(principal, sandbox, userKey string) string
}

func (w *world) jwt(principal, sandbox, key string) string {
	if w.minter == nil {
		return "jwt-" + key
	}
	return w.minter(principal, sandbox, key)
}

// task is what the manager knows of one.
type task struct {
	run      workspace.RunSpec
	input    json.RawMessage
	attempt  int
	node     string
	sandbox  string
	nodeKey  string
	finished *workspace.Finish
	progress []workspace.Progress
	verdict  string
	reason   string
}

// overlay is what the filesystem service knows of one.
type overlay struct {
	req    filesystem.Prepare
	path   string
	merged *filesystem.Merge
	gone   bool
}

func newWorld(t testing.TB) *world {
	kp, err := nkeys.CreateCurveKeys()
	require.NoError(t, err)
	return &world{t: t, dir: t.TempDir(), tasks: map[string]*task{}, wake: make(chan struct{}, 1), boxes: map[string]workspace.Sandbox{},
		overlays: map[string]*overlay{}, leases: map[string]string{}, renewed: map[string]int{}, key: kp, chunks: map[string][]Chunk{}, lease: 10 * time.Second, denied: map[string]error{}}
}

func (w *world) fail(op string) error { return w.denied[op] }

// submit queues the first attempt of a task.
func (w *world) submit(id string, run workspace.RunSpec, input string) workspace.QueueItem {
	w.mu.Lock()
	defer w.mu.Unlock()
	item := workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}
	w.tasks[id] = &task{run: run, input: json.RawMessage(input), attempt: 1}
	w.enqueue(item)
	return item
}

func (w *world) enqueue(item workspace.QueueItem) {
	w.queue = append(w.queue, item)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Pull and the deliveries: what is not acknowledged comes again when the node's process is gone.
func (w *world) Pull(ctx context.Context, limit int) ([]Delivery, error) {
	for {
		w.mu.Lock()
		var out []Delivery
		for len(w.queue) > 0 && len(out) < limit {
			out = append(out, &handed{w: w, item: w.queue[0]})
			w.queue = w.queue[1:]
		}
		w.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.wake:
		}
	}
}

func (w *world) Close() {}

type handed struct {
	w    *world
	item workspace.QueueItem
}

func (h *handed) Item() (workspace.QueueItem, error) { return h.item, nil }
func (h *handed) Ack(context.Context) error          { return nil }
func (h *handed) Again(_ context.Context, _ time.Duration) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.enqueue(h.item)
	return nil
}

func (w *world) unavailable() error {
	if w.down {
		return fault.New(fault.Unavailable, "the manager is down")
	}
	return nil
}

func (w *world) Claim(_ context.Context, req workspace.Claim) (workspace.ClaimReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.unavailable(); err != nil {
		return workspace.ClaimReply{}, err
	}
	w.claimSeen++
	t := w.tasks[req.Task]
	if t == nil || t.attempt != req.Attempt || t.finished != nil || t.sandbox != "" && t.sandbox != req.Sandbox {
		return workspace.ClaimReply{}, fault.New(fault.Conflict, "the attempt is not to be had")
	}
	t.node, t.sandbox, t.nodeKey = "node-1", req.Sandbox, req.NodeKey
	rep := workspace.ClaimReply{Run: t.run, UserJWT: w.jwt(t.run.Principal, req.Sandbox, req.UserKey), Deadline: time.Now().Add(w.lease)}
	rep.Task.Submission.Input = t.input
	rep.Task.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return rep, nil
}

func (w *world) Renew(_ context.Context, req workspace.Renew) (workspace.Renewed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out workspace.Renewed
	if err := w.unavailable(); err != nil {
		return out, err
	}
	for _, c := range req.Claims {
		rep := workspace.HeldReply{Verdict: workspace.VerdictKeep, Deadline: time.Now().Add(w.lease)}
		t := w.tasks[c.Task]
		b, box := w.boxes[c.Task]
		if c.UserKey != "" && t != nil {
			rep.UserJWT = w.jwt(t.run.Principal, t.sandbox, c.UserKey)
		} else if c.UserKey != "" && box {
			rep.UserJWT = w.jwt(b.Principal, b.ID, c.UserKey)
		}
		switch {
		case box && b.State != workspace.SandboxStopped:
		case t == nil || t.attempt != c.Attempt || t.finished != nil || t.sandbox == "":
			rep = workspace.HeldReply{Verdict: workspace.VerdictLost, Reason: "it is not yours"}
		case t.verdict != "":
			rep.Verdict, rep.Reason = t.verdict, t.reason
		}
		out.Claims = append(out.Claims, rep)
	}
	return out, nil
}

func (w *world) Progress(_ context.Context, req workspace.Progress) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tasks[req.Task]; t != nil {
		t.progress = append(t.progress, req)
	}
	return nil
}

func (w *world) Finish(_ context.Context, req workspace.Finish) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.unavailable(); err != nil {
		return err
	}
	t := w.tasks[req.Task]
	if t == nil || t.attempt != req.Attempt || t.sandbox == "" {
		return fault.New(fault.Conflict, "it is not yours")
	}
	if t.finished != nil && fmt.Sprint(t.finished.Outcome.Exit) != fmt.Sprint(req.Outcome.Exit) {
		w.t.Errorf("task %s ended in two ways: %+v and %+v", req.Task, t.finished, req)
	}
	t.finished = &req
	return nil
}

func (w *world) Heartbeat(_ context.Context, req workspace.Heartbeat) (workspace.HeartbeatReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats = append(w.beats, req)
	return workspace.HeartbeatReply{Pools: slices.Clone(w.pools)}, w.unavailable()
}

func (w *world) SandboxWarned(_ context.Context, req runtime.SandboxWarned) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warned = append(w.warned, req)
	return nil
}

func (w *world) NodeCleaned(_ context.Context, req workspace.Cleaned) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.unavailable(); err != nil {
		return err
	}
	w.cleaned = append(w.cleaned, req)
	return nil
}

func (w *world) SandboxEnded(_ context.Context, req runtime.SandboxEnded) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, req)
	b := w.boxes[req.ID]
	b.State = workspace.SandboxStopped
	w.boxes[req.ID] = b
	return nil
}

// files is the filesystem service: one directory per overlay.
type files struct{ *world }

func (f files) Prepare(_ context.Context, req filesystem.Prepare) (filesystem.Prepared, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail("prepare"); err != nil {
		return filesystem.Prepared{}, err
	}
	o := f.overlays[req.Sandbox]
	if o == nil {
		o = &overlay{req: req, path: filepath.Join(f.dir, req.Sandbox)}
		if err := os.MkdirAll(o.path, 0o755); err != nil {
			return filesystem.Prepared{}, err
		}
		_ = os.Chown(o.path, 1000, 1000)
		if from := f.overlays[req.From]; from != nil {
			if out, err := exec.Command("cp", "-a", from.path+"/.", o.path).CombinedOutput(); err != nil {
				return filesystem.Prepared{}, fmt.Errorf("copy: %w: %s", err, out)
			}
			f.overlays[req.Sandbox] = o
			return filesystem.Prepared{Path: o.path, UID: 1000, GID: 1000, Base: "base"}, nil
		}
		_ = os.WriteFile(filepath.Join(o.path, "head.txt"), []byte("from the head\n"), 0o644)
		_ = os.Chown(filepath.Join(o.path, "head.txt"), 1000, 1000)
		f.overlays[req.Sandbox] = o
	}
	return filesystem.Prepared{Path: o.path, UID: 1000, GID: 1000, Base: "base"}, nil
}

func (f files) Merge(_ context.Context, req filesystem.Merge) (filesystem.Merged, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail("merge"); err != nil {
		return filesystem.Merged{}, err
	}
	o := f.overlays[req.Sandbox]
	if o == nil || o.gone {
		return filesystem.Merged{}, fault.New(fault.Conflict, "there is no such overlay")
	}
	o.merged = &req
	return filesystem.Merged{Snapshot: "snap-" + req.Sandbox, FilesChanged: 1, Artifact: "artifact"}, nil
}

func (f files) Discard(_ context.Context, req filesystem.Discard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.overlays[req.Sandbox]; o != nil {
		o.gone = true
	}
	return nil
}

func (f files) Held(_ context.Context, req filesystem.Held) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, req.Sandboxes)
	return nil
}

// vault is the secrets service.
type vault struct{ *world }

func (v vault) Issue(_ context.Context, req secrets.IssueRequest) (secrets.IssueReply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.fail("issue"); err != nil {
		return secrets.IssueReply{}, err
	}
	nodeKey := v.boxes[req.Sandbox].NodeKey
	if t := v.tasks[req.Task]; t != nil && t.sandbox == req.Sandbox {
		nodeKey = t.nodeKey
	}
	if nodeKey == "" {
		return secrets.IssueReply{}, fault.New(fault.Denied, "it is not yours")
	}
	b, err := json.Marshal(v.values)
	if err != nil {
		return secrets.IssueReply{}, err
	}
	sealed, err := v.key.Seal(b, nodeKey)
	if err != nil {
		return secrets.IssueReply{}, err
	}
	pub, _ := v.key.PublicKey()
	v.issued++
	v.leases[req.Sandbox] = "active"
	return secrets.IssueReply{Sealed: sealed, SealedBy: pub, Leases: 2}, nil
}

func (v vault) Renew(_ context.Context, req secrets.RenewRequest) (secrets.RenewReply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]secrets.RenewResult, len(req.Leases))
	for i, l := range req.Leases {
		v.renewed[l.Sandbox]++
		if v.leases[l.Sandbox] == "expired" {
			out[i].Code = string(fault.NotFound)
		}
	}
	return secrets.RenewReply{Results: out}, nil
}

func (v vault) Revoke(_ context.Context, req secrets.RevokeRequest) (secrets.RevokeReply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leases[req.Sandbox] = req.Reason
	v.revoked = append(v.revoked, req.Sandbox)
	return secrets.RevokeReply{Leases: 2}, nil
}

// Publish keeps chunks as a stream would.
func (w *world) Publish(_ context.Context, item workspace.QueueItem, chunks []Chunk) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failOut > 0 {
		w.failOut--
		n := len(chunks) / 2
		w.chunks[item.Task] = append(w.chunks[item.Task], clones(chunks[:n])...)
		return n, fault.New(fault.Unavailable, "the stream is away")
	}
	w.chunks[item.Task] = append(w.chunks[item.Task], clones(chunks)...)
	return len(chunks), nil
}

func clones(in []Chunk) []Chunk {
	out := slices.Clone(in)
	for i := range out {
		out[i].Data = slices.Clone(out[i].Data)
	}
	return out
}

// read puts a task's published output together as a reader does: by the offsets. It fails on a gap,
// and on bytes that came twice and differ.
func (w *world) read(id, stream string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []byte
	eof := false
	for _, c := range w.chunks[id] {
		if c.Stream.String() != stream {
			continue
		}
		require.LessOrEqual(w.t, c.Offset, int64(len(out)), "a gap in %s", stream)
		old := min(int64(len(out))-c.Offset, int64(len(c.Data)))
		require.Equal(w.t, string(out[c.Offset:c.Offset+old]), string(c.Data[:old]), "bytes at the same offset")
		out = append(out, c.Data[old:]...)
		eof = eof || c.EOF
	}
	return string(out), eof
}

// finished waits for a task's end and gives it.
func (w *world) finished(id string) workspace.Finish {
	w.t.Helper()
	var f *workspace.Finish
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		f = w.tasks[id].finished
		return f != nil
	}, 30*time.Second, 5*time.Millisecond, "task %s does not end", id)
	return *f
}

func (w *world) with(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *world) activeLeases() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var active []string
	for id := range maps.Keys(w.leases) {
		if w.leases[id] == "active" {
			active = append(active, id)
		}
	}
	return active
}
