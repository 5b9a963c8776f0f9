package schemas_test

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/schemas"
)

func TestSubjectsRoundTrip(t *testing.T) {
	id := schemas.NewID()
	for _, c := range []struct {
		want string
		make func() (string, error)
	}{
		{"weft.v1.req.acme.demo.alice.memory.add", func() (string, error) { return schemas.Req("acme", "demo", "alice", "memory", "add") }},
		{"weft.v1.req.acme.-.alice.workspace-manager.workspace-list", func() (string, error) {
			return schemas.Req("acme", "-", "alice", "workspace-manager", "workspace-list")
		}},
		{"weft.v1.sbx.acme.demo." + id + ".alice.exec", func() (string, error) { return schemas.Sbx("acme", "demo", id, "alice", "exec") }},
		{"weft.v1.task.acme.demo.alice.submit", func() (string, error) { return schemas.Submit("acme", "demo", "alice") }},
		{"weft.v1.msg.acme.demo.reviewer.analyst", func() (string, error) { return schemas.Msg("acme", "demo", "reviewer", "analyst") }},
		{"weft.v1.evt.acme.demo.task." + id, func() (string, error) { return schemas.Evt("acme", "demo", "task", id) }},
		{"weft.v1.out.acme.demo." + id + ".3", func() (string, error) { return schemas.Out("acme", "demo", id, 3) }},
		{"weft.v1.int.n1.workspace-manager.claim", func() (string, error) { return schemas.Int("n1", "workspace-manager", "claim") }},
		{"weft.v1.node.n1.workspace-manager.drain", func() (string, error) { return schemas.Node("n1", "workspace-manager", "drain") }},
		{"weft.v1.queue.default.normal", func() (string, error) { return schemas.Queue("default", "normal") }},
		{"weft.v1.audit.acme.exec", func() (string, error) { return schemas.Audit("acme", "exec") }},
		{"weft.v1.dlq.acme.tasks", func() (string, error) { return schemas.DLQ("acme", "tasks") }},
	} {
		got, err := c.make()
		if err != nil || got != c.want {
			t.Fatalf("got %q, %v; want %q", got, err, c.want)
		}
		s, err := schemas.ParseSubject(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Make()
		if err != nil || again != got {
			t.Fatalf("%q parsed and made again is %q, %v", got, again, err)
		}
	}
}

func TestHostileNamesAreRefused(t *testing.T) {
	for _, bad := range []string{"", ".", "*", ">", "a.b", "a b", "a/b", "..", "-a", "a-", "A", "ä", "a\x00", "a\n", "a\u202e", strings.Repeat("a", 64), "a*", "$js"} {
		if err := schemas.CheckName("tenant", bad); err == nil {
			t.Errorf("CheckName took %q", bad)
		}
		if _, err := schemas.Req(bad, "demo", "alice", "memory", "add"); err == nil {
			t.Errorf("Req took tenant %q", bad)
		}
		if _, err := schemas.Req("acme", "demo", bad, "memory", "add"); err == nil {
			t.Errorf("Req took principal %q", bad)
		}
		if err := schemas.CheckID("task", bad); err == nil {
			t.Errorf("CheckID took %q", bad)
		}
	}
	for _, bad := range []int{0, -1} {
		if _, err := schemas.Out("acme", "demo", schemas.NewID(), bad); err == nil {
			t.Errorf("Out took attempt %d", bad)
		}
	}
}

func TestTaskID(t *testing.T) {
	a := schemas.TaskID("acme", "demo", "k1")
	if a != schemas.TaskID("acme", "demo", "k1") {
		t.Fatal("not stable")
	}
	// Parts are delimited: moving a letter from one to the next is another task.
	for _, o := range []string{schemas.TaskID("acme", "demok", "1"), schemas.TaskID("acmed", "emo", "k1"), schemas.TaskID("acme", "demo", "k2")} {
		if o == a {
			t.Fatal("collision")
		}
	}
	if a != "lpfs2n7p50glfiu0h6hl" { // computed apart from this code
		t.Fatalf("task id %q", a)
	}
	if err := schemas.CheckID("task", a); err != nil {
		t.Fatal(err)
	}
}

func TestEventTypes(t *testing.T) {
	e, v, ok := schemas.ParseEventType(schemas.EventType("task", "queued"))
	if !ok || e != "task" || v != "queued" {
		t.Fatal(e, v, ok)
	}
	for _, bad := range []string{"", "dev.weft.task.v1", "dev.weft.task.queued.v2", "com.weft.task.queued.v1", "dev.weft.a.b.c.v1"} {
		if _, _, ok := schemas.ParseEventType(bad); ok {
			t.Errorf("took %q", bad)
		}
	}
}

// FuzzParseSubject: whatever comes in, a subject that parses is made again letter by letter, and none
// of its fields could widen a permission.
func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"weft.v1.req.acme.demo.alice.memory.add", "weft.v1.out.acme.demo.00000000000000000000.1",
		"weft.v1.out.acme.demo.00000000000000000000.01", "weft.v1.evt.acme.-.tenant.acme", "weft.v1.task.a.b.c.submit", "weft.v1.req.*.>.x", "weft.v1.queue.", "weft.v1."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := schemas.ParseSubject(in)
		if err != nil {
			return
		}
		out, err := s.Make()
		if err != nil || out != in {
			t.Fatalf("%q became %q, %v", in, out, err)
		}
		if strings.ContainsAny(in, "*> \t\r\n/\x00") || strings.Contains(in, "..") {
			t.Fatalf("took %q", in)
		}
	})
}
