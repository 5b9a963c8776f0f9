package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// outputLog is what a task wrote so far.
type outputLog struct {
	mu     sync.Mutex
	chunks []workspace.OutputChunk
	size   map[string]int64
	done   bool
	more   chan struct{} // closed and replaced when there is more
}

func newOutputLog() *outputLog {
	return &outputLog{size: map[string]int64{}, more: make(chan struct{})}
}

func (o *outputLog) add(stream string, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chunks = append(o.chunks, workspace.OutputChunk{Stream: stream, Offset: o.size[stream], Attempt: 1, Data: bytes.Clone(b)})
	o.size[stream] += int64(len(b))
	close(o.more)
	o.more = make(chan struct{})
}

func (o *outputLog) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	close(o.more)
	o.more = make(chan struct{})
}

type outputWriter struct {
	o    *outputLog
	name string
}

func (w outputWriter) Write(p []byte) (int, error) { w.o.add(w.name, p); return len(p), nil }

func (f *fakeMesh) consumeTasks() {
	ctx := context.Background()
	cons, err := f.manager.JetStream().CreateOrUpdateConsumer(ctx, "TASKS-acme", jetstream.ConsumerConfig{Durable: "manager", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(f.t, err)
	cc, err := cons.Consume(func(m jetstream.Msg) {
		f.accept(m)
		_ = m.Ack()
	})
	require.NoError(f.t, err)
	f.t.Cleanup(cc.Stop)
}

func (f *fakeMesh) accept(m jetstream.Msg) {
	s, err := schemas.ParseSubject(m.Subject())
	if err != nil {
		return
	}
	key := m.Headers().Get(schemas.HeaderID)
	var sub workspace.Submission
	bad := json.Unmarshal(m.Data(), &sub)
	t := workspace.Task{ID: schemas.TaskID(s.Tenant, s.Workspace, key), Tenant: s.Tenant, Workspace: s.Workspace, Key: key,
		Principal: s.Principal, Submission: sub, State: workspace.Pending, CreatedAt: time.Now().UTC()}
	argv := sub.Command
	if sub.Agent != "" {
		a, err := lookup[workspace.Agent](f, "agent", s.Workspace, sub.Agent)
		if err != nil {
			bad = err
		} else if len(argv) == 0 {
			argv = a.Entrypoint
		}
	}
	k := records.Key{Tenant: s.Tenant, Workspace: s.Workspace, ID: t.ID}
	event := "submitted"
	if bad != nil {
		now := time.Now().UTC()
		t.State, t.FinishedAt, event = workspace.Rejected, &now, "rejected"
		t.Fault = &workspace.Fault{Code: string(fault.CodeOf(bad)), Message: bad.Error()}
	}
	ctx := context.Background()
	if _, err := f.tasks.Create(ctx, k, event, t); err != nil || bad != nil {
		return // a repeat, or refused
	}
	go f.runTask(k, argv)
}

// runTask runs a task's command on this machine.
func (f *fakeMesh) runTask(k records.Key, argv []string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := newOutputLog()
	f.mu.Lock()
	f.outputs[k.ID], f.cancels[k.ID] = o, cancel
	f.mu.Unlock()
	r, _ := f.tasks.Update(context.Background(), k, func(t *workspace.Task) (string, error) {
		now := time.Now().UTC()
		t.State, t.Attempt = workspace.Running, workspace.Attempt{Number: 1, Node: "node-1", Sandbox: schemas.NewID(), QueuedAt: now, StartedAt: &now}
		return "running", nil
	})
	dir := f.t.TempDir()
	input := filepath.Join(dir, "input.json")
	_ = os.WriteFile(input, r.Value.Submission.Input, 0o600)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "WEFT_INPUT="+input, "WEFT_TASK="+k.ID)
	for n, v := range r.Value.Submission.Env {
		cmd.Env = append(cmd.Env, n+"="+v)
	}
	cmd.Stdout, cmd.Stderr = outputWriter{o, "stdout"}, outputWriter{o, "stderr"}
	exit := exitOf(cmd.Run(), cmd)
	o.end()
	_, _ = f.tasks.Update(context.Background(), k, func(t *workspace.Task) (string, error) {
		now := time.Now().UTC()
		t.FinishedAt, t.Attempt.EndedAt = &now, &now
		t.Attempt.Outcome = &workspace.Outcome{Exit: &exit}
		switch {
		case t.Cancel != "":
			t.State = workspace.Cancelled
		case exit.Code == 0:
			t.State = workspace.Complete
		default:
			t.State = workspace.Error
		}
		return string(t.State), nil
	})
}

func exitOf(err error, cmd *exec.Cmd) workspace.Exit {
	var x *exec.ExitError
	switch {
	case err == nil:
		return workspace.Exit{Reason: "exited"}
	case errors.As(err, &x) && x.ExitCode() >= 0:
		return workspace.Exit{Code: x.ExitCode(), Reason: "exited"}
	case cmd.ProcessState == nil:
		return workspace.Exit{Code: 127, Reason: "start-failed"}
	}
	return workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "cancelled"}
}

func (f *fakeMesh) taskOps() []mesh.Endpoint {
	key := func(by mesh.Caller, id string) records.Key {
		return records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: id}
	}
	get := func(ctx context.Context, by mesh.Caller, r workspace.ID) (workspace.Task, error) {
		if err := schemas.CheckID("task", r.ID); err != nil {
			return workspace.Task{}, fault.New(fault.Invalid, "%v", err)
		}
		t, err := f.tasks.Get(ctx, key(by, r.ID))
		return t.Value, err
	}
	return []mesh.Endpoint{
		mesh.Op(workspace.OpTaskGet, 5*time.Second, get),
		mesh.Op(workspace.OpTaskList, 5*time.Second, func(ctx context.Context, by mesh.Caller, r workspace.TaskList) (workspace.Page[workspace.Task], error) {
			rs, err := f.tasks.List(ctx, by.Tenant, by.Workspace)
			var out []workspace.Task
			for _, x := range rs {
				if len(r.States) == 0 || slices.Contains(r.States, x.Value.State) {
					out = append(out, x.Value)
				}
			}
			slices.SortFunc(out, func(a, b workspace.Task) int { return b.CreatedAt.Compare(a.CreatedAt) })
			return page(out), err
		}),
		mesh.Op(workspace.OpTaskHistory, 5*time.Second, func(ctx context.Context, by mesh.Caller, r workspace.ID) (workspace.Page[workspace.Change[workspace.Task]], error) {
			rs, err := f.tasks.History(ctx, key(by, r.ID))
			var out []workspace.Change[workspace.Task]
			for _, x := range rs {
				out = append(out, workspace.Change[workspace.Task]{Event: x.Event, Entity: "task", ID: x.ID, Sequence: x.Sequence, Time: x.Time, Value: x.Value})
			}
			return page(out), err
		}),
		mesh.Op(workspace.OpTaskCancel, 5*time.Second, func(ctx context.Context, by mesh.Caller, r workspace.ID) (workspace.Task, error) {
			t, err := f.tasks.Update(ctx, key(by, r.ID), func(t *workspace.Task) (string, error) {
				if t.State.Final() {
					return "", nil
				}
				t.Cancel = by.Principal
				return "cancelling", nil
			})
			f.mu.Lock()
			defer f.mu.Unlock()
			if c := f.cancels[r.ID]; c != nil {
				c()
			}
			return t.Value, err
		}),
		mesh.Op(workspace.OpTaskRetry, 5*time.Second, func(ctx context.Context, by mesh.Caller, r workspace.ID) (workspace.Task, error) {
			t, err := get(ctx, by, r)
			if err == nil && !t.State.Final() {
				err = fault.New(fault.Conflict, "task %s has not ended; cancel it first", r.ID)
			}
			return workspace.Task{ID: schemas.TaskID(by.Tenant, by.Workspace, t.Key+"/retry"), RetryOf: r.ID}, err
		}),
		mesh.Many(workspace.OpTaskOutput, f.output),
		mesh.Many(workspace.OpEvents, f.events),
		mesh.Op(workspace.OpMessages, 35*time.Second, f.messages),
	}
}

func (f *fakeMesh) output(ctx context.Context, _ mesh.Caller, r workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
	f.mu.Lock()
	o := f.outputs[r.Task]
	f.mu.Unlock()
	if o == nil {
		return fault.New(fault.NotFound, "no output of task %q", r.Task)
	}
	for n := 0; ; {
		o.mu.Lock()
		chunks, done, more := o.chunks[n:], o.done, o.more
		n = len(o.chunks)
		o.mu.Unlock()
		for _, c := range chunks {
			if c.Offset >= r.Offsets[c.Stream] {
				if err := send(c); err != nil {
					return err
				}
			}
		}
		if done || !r.Follow {
			return send(workspace.OutputChunk{Attempt: 1, End: true})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}

func (f *fakeMesh) events(ctx context.Context, by mesh.Caller, r workspace.EventsRequest, send func(workspace.Change[json.RawMessage]) error) error {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{"weft.v1.evt." + by.Tenant + "." + by.Workspace + ".>"}, DeliverPolicy: jetstream.DeliverAllPolicy}
	if r.FromTime != nil {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, r.FromTime
	}
	if r.FromSequence > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.FromSequence
	}
	cons, err := f.manager.JetStream().OrderedConsumer(ctx, "LOG-"+by.Tenant, cfg)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		b, err := cons.Fetch(100, jetstream.FetchMaxWait(300*time.Millisecond))
		if err != nil {
			return err
		}
		n := 0
		for m := range b.Messages() {
			n++
			s, _ := schemas.ParseSubject(m.Subject())
			_, event, _ := schemas.ParseEventType(m.Headers().Get(schemas.HeaderType))
			md, _ := m.Metadata()
			if len(r.Entities) > 0 && !slices.Contains(r.Entities, s.Entity) {
				continue
			}
			if err := send(workspace.Change[json.RawMessage]{Event: event, Entity: s.Entity, Workspace: s.Workspace, ID: s.ID, Sequence: md.Sequence.Stream, Time: md.Timestamp, Value: m.Data()}); err != nil {
				return err
			}
		}
		if n == 0 && !r.Follow {
			return nil
		}
	}
	return nil
}

func (f *fakeMesh) messages(ctx context.Context, by mesh.Caller, r workspace.MessagesRequest) (workspace.Page[workspace.Message], error) {
	if r.To == "" {
		r.To = by.Principal
	}
	cons, err := f.manager.JetStream().OrderedConsumer(ctx, "MSG-"+by.Tenant, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"weft.v1.msg." + by.Tenant + "." + by.Workspace + "." + r.To + ".*"},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.After + 1})
	if err != nil {
		return page[workspace.Message](nil), err
	}
	b, err := cons.Fetch(r.Limit, jetstream.FetchMaxWait(max(time.Duration(r.WaitMS)*time.Millisecond, 200*time.Millisecond)))
	if err != nil {
		return page[workspace.Message](nil), err
	}
	var out []workspace.Message
	for m := range b.Messages() {
		s, _ := schemas.ParseSubject(m.Subject())
		md, _ := m.Metadata()
		h := map[string]string{}
		for k := range m.Headers() {
			h[k] = m.Headers().Get(k)
		}
		out = append(out, workspace.Message{Sequence: md.Sequence.Stream, To: s.To, From: s.Principal, Time: md.Timestamp, Headers: h, Body: m.Data()})
	}
	return page(out), nil
}

func (f *fakeMesh) sandboxOps() []mesh.Endpoint {
	return []mesh.Endpoint{
		op(workspace.OpSandboxCreate, func(by mesh.Caller, r workspace.SandboxCreate) (workspace.Sandbox, error) {
			if _, err := lookup[workspace.Template](f, "template", by.Workspace, r.Template); err != nil {
				return workspace.Sandbox{}, err
			}
			if s, ok := f.claimed(by, r.Claim); ok {
				return s, nil
			}
			s := workspace.Sandbox{ID: schemas.NewID(), Tenant: by.Tenant, Workspace: by.Workspace, Principal: by.Principal, Template: r.Template, Claim: r.Claim, Node: "node-1", State: "running", CreatedAt: time.Now()}
			dir := f.t.TempDir()
			served, err := f.node.ServeSandbox(by.Tenant, by.Workspace, s.ID, append(f.sandboxFiles(dir),
				stream.Op(f.node, runtime.OpExec, func(ctx context.Context, _ mesh.Caller, r runtime.ExecRequest, st *stream.Session) (runtime.ExecResult, error) {
					return execHere(ctx, dir, r, st)
				}),
				stream.Op(f.node, runtime.OpRead, func(_ context.Context, _ mesh.Caller, r runtime.FileRequest, st *stream.Session) (workspace.Empty, error) {
					b, err := os.ReadFile(dir + r.Path)
					if err != nil {
						return workspace.Empty{}, fault.New(fault.NotFound, "no file %s in the sandbox", r.Path)
					}
					_, err = st.Channel(stream.Data).Write(b)
					return workspace.Empty{}, err
				}),
				stream.Op(f.node, runtime.OpWrite, func(_ context.Context, _ mesh.Caller, r runtime.FileRequest, st *stream.Session) (workspace.Empty, error) {
					b, err := io.ReadAll(st.Channel(stream.Data))
					if err == nil {
						err = os.WriteFile(dir+r.Path, b, os.FileMode(r.Mode))
					}
					return workspace.Empty{}, err
				}),
				op(runtime.OpInspect, func(mesh.Caller, workspace.Empty) (runtime.Inspect, error) {
					i := runtime.Isolation{Level: "standard", Runtime: "io.containerd.runc.v2", FirstID: 1 << 30, IDs: 65536, User: 1000, NoNewPrivileges: true, Seccomp: "base",
						Tmpfs: []runtime.Tmpfs{{Path: "/tmp", Bytes: 1 << 20}}, Rlimits: []runtime.Rlimit{{Name: "nofile", Soft: 9, Hard: 9}}, NotEnforced: []string{"io_write_bps"}}
					return runtime.Inspect{ID: s.ID, Level: "standard", PIDs: 2, Memory: 5 << 20, Isolation: &i}, nil
				}),
			)...)
			if err != nil {
				return s, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sandboxes[s.ID], f.served[s.ID] = s, served
			return s, nil
		}),
		op(workspace.OpSandboxGet, func(_ mesh.Caller, r workspace.ID) (workspace.Sandbox, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			s, ok := f.sandboxes[r.ID]
			if !ok {
				return s, fault.New(fault.NotFound, "no sandbox %q", r.ID)
			}
			return s, nil
		}),
		op(workspace.OpSandboxList, func(by mesh.Caller, _ workspace.List) (workspace.Page[workspace.Sandbox], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []workspace.Sandbox
			for _, s := range f.sandboxes {
				if s.Workspace == by.Workspace {
					out = append(out, s)
				}
			}
			return page(out), nil
		}),
		op(workspace.OpSandboxExtend, func(_ mesh.Caller, r workspace.SandboxExtend) (workspace.Sandbox, error) {
			return f.alter(r.ID, func(s *workspace.Sandbox) {
				at := time.Now().UTC().Add(time.Duration(r.TTLMS) * time.Millisecond)
				s.ExpiresAt, s.Run.IdleMS, s.Warning = &at, r.IdleMS, &workspace.StopWarning{Reason: "idle", StopsAt: at}
			})
		}),
		op(workspace.OpSandboxFork, func(_ mesh.Caller, r workspace.SandboxFork) (workspace.Page[workspace.Sandbox], error) {
			if r.Count > 2 {
				return workspace.Page[workspace.Sandbox]{}, fault.New(fault.Exhausted, "no room for %d", r.Count)
			}
			var out []workspace.Sandbox
			for range r.Count {
				out = append(out, workspace.Sandbox{ID: "f" + r.ID[1:], ForkedFrom: r.ID})
			}
			return page(out), nil
		}),
		op(workspace.OpSandboxPause, func(_ mesh.Caller, r workspace.ID) (workspace.Sandbox, error) {
			return f.alter(r.ID, func(s *workspace.Sandbox) { s.State = workspace.SandboxPaused })
		}),
		op(workspace.OpSandboxResume, func(_ mesh.Caller, r workspace.ID) (workspace.Sandbox, error) {
			return f.alter(r.ID, func(s *workspace.Sandbox) { s.State = workspace.SandboxRunning })
		}),
		op(workspace.OpSandboxKill, func(_ mesh.Caller, r workspace.ID) (workspace.Sandbox, error) {
			f.mu.Lock()
			s, served := f.sandboxes[r.ID], f.served[r.ID]
			s.State, s.Exit = "stopped", &workspace.Exit{Reason: "killed", By: "alice"}
			s.LastOutput = []workspace.LastOutput{{Process: "p1", Argv: []string{"make"}, Stdout: "one\ntwo\n"}, {Stderr: "init\x1b[2J\n"}}
			f.sandboxes[r.ID] = s
			delete(f.served, r.ID)
			f.mu.Unlock()
			if served != nil {
				served.Stop()
			}
			return s, nil
		}),
	}
}

func (f *fakeMesh) alter(id string, do func(*workspace.Sandbox)) (workspace.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.sandboxes[id]
	if !ok {
		return s, fault.New(fault.NotFound, "no sandbox %q", id)
	}
	do(&s)
	f.sandboxes[id] = s
	return s, nil
}

// execHere runs a command on this machine, with a real terminal if one is asked for.
func execHere(ctx context.Context, dir string, r runtime.ExecRequest, st *stream.Session) (runtime.ExecResult, error) {
	cmd := exec.CommandContext(ctx, r.Argv[0], r.Argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "ROOT="+dir)
	for k, v := range r.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := st.Send(stream.Started, runtime.Process{ID: r.ID, PTY: r.PTY, Running: true}); err != nil {
		return runtime.ExecResult{}, err
	}
	res := func(err error) (runtime.ExecResult, error) {
		return runtime.ExecResult{Process: "p1", Exit: exitOf(err, cmd)}, nil
	}
	if !r.PTY {
		cmd.Stdout, cmd.Stderr = st.Channel(stream.Stdout), st.Channel(stream.Stderr)
		in, err := cmd.StdinPipe()
		if err != nil {
			return runtime.ExecResult{}, err
		}
		go func() { _, _ = io.Copy(in, st.Channel(stream.Stdin)); _ = in.Close() }()
		return res(cmd.Run())
	}
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: r.Rows, Cols: r.Cols})
	if err != nil {
		return runtime.ExecResult{}, err
	}
	defer func() { _ = tty.Close() }()
	go func() { _, _ = io.Copy(tty, st.Channel(stream.Stdin)) }()
	_, _ = io.Copy(st.Channel(stream.Stdout), tty)
	return res(cmd.Wait())
}
