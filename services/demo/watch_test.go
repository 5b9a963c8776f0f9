package demo

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

func event(t *testing.T, sequence uint64, entity, id, what string, v any) client.Event {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return client.Event{Sequence: sequence, Entity: entity, ID: id, Event: what, Value: b}
}

func TestWatchShowsWhatHappens(t *testing.T) {
	v, b := testView(100, false)
	w := newWatch(nil, v)
	ctx := context.Background()
	analystTask := workspace.Task{ID: "t1", State: workspace.Queued, Submission: workspace.Submission{Agent: analyst, Parent: "t0", Labels: map[string]string{labelFolder: "pkg"}}}
	for _, e := range []client.Event{
		event(t, 4, workspace.EntityTask, "t1", "queued", analystTask),
		event(t, 5, workspace.EntityTask, "t1", "progress", analystTask),
		event(t, 6, "lease", "s1", "issuing", secrets.Lease{Task: "t1"}),
		event(t, 7, "lease", "s1", "issued", secrets.Lease{Task: "t1", Secrets: []string{"a", "b"}, TTLMS: 60_000}),
		event(t, 8, workspace.EntityGather, "g", "waiting", workspace.Gather{Trigger: "review", Group: workspace.Group{ID: "audit-t0", Size: 3}, Members: make([]workspace.GatherMember, 2)}),
		event(t, 9, workspace.EntityGather, "g", "fired", workspace.Gather{Trigger: "review", Group: workspace.Group{ID: "audit-t0", Size: 3}, Task: "t2"}),
	} {
		require.NoError(t, w.event(ctx, e))
	}
	require.EqualValues(t, 10, w.next, "after a disconnect it goes on behind the last")
	require.Equal(t, `   7.5s analyst pkg          ● queued     task t1
   7.5s analyst pkg          ● lease issued a, b, for 60 s unless it is renewed
   7.5s trigger review       ● waiting    2 of 3 have reported
   7.5s trigger review       ● fired      it starts task t2
`, b.String())
	require.Len(t, w.children("t0"), 1)
	require.Empty(t, w.children("t1"))
	require.Error(t, w.event(ctx, client.Event{Entity: workspace.EntityTask, ID: "x", Value: []byte("no JSON")}))
}

func TestWatchRemembersOutputAndAttacks(t *testing.T) {
	v, b := testView(100, false)
	w := newWatch(nil, v)
	task := &followed{label: "analyst pkg", attempt: 1, out: map[string]*transcript{}}
	for _, c := range []workspace.OutputChunk{
		{Stream: stdout, Attempt: 1, Data: []byte("hello\n{\"attack\": \"host\", \"what\": \"read\", \"refused\": true, \"code\": \"EACCES\"}\n")},
		{Stream: stdout, Attempt: 2, Data: []byte("of an attempt that is not followed\n")},
		{Stream: stderr, Attempt: 1, Data: []byte("oops\n")},
	} {
		w.chunk(task, c)
	}
	require.Len(t, task.attacks, 1)
	require.Len(t, task.out, 2)
	require.Equal(t, `   7.5s analyst pkg          │ hello
   7.5s analyst pkg          │ tries to read: refused (EACCES)
   7.5s analyst pkg          ┃ oops
`, b.String())
}

func TestUntil(t *testing.T) {
	v, _ := testView(100, false)
	w := newWatch(nil, v)
	n := 0
	go func() {
		for range 3 {
			w.mu.Lock()
			n++
			w.tell()
			w.mu.Unlock()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.until(ctx, "three", func() (bool, error) { return n == 3, nil }))

	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := w.until(short, "the end of the world", func() (bool, error) { return false, nil })
	require.True(t, fault.Is(err, fault.Deadline))
	require.ErrorContains(t, err, "the end of the world: waited")

	w.broken = fault.New(fault.Denied, "no")
	require.True(t, fault.Is(w.until(ctx, "x", func() (bool, error) { return false, nil }), fault.Denied))
}
