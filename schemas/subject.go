package schemas

import (
	"fmt"
	"strconv"
	"strings"
)

// Prefix begins every subject of this version of the contract.
const Prefix = "weft.v1."

// Plane is the third token of a subject: what kind of traffic it carries.
type Plane string

// The planes. ARCHITECTURE.md says who sends and who receives on each.
const (
	PlaneReq   Plane = "req"
	PlaneSbx   Plane = "sbx"
	PlaneTask  Plane = "task"
	PlaneMsg   Plane = "msg"
	PlaneEvt   Plane = "evt"
	PlaneOut   Plane = "out"
	PlaneInt   Plane = "int"
	PlaneNode  Plane = "node"
	PlaneQueue Plane = "queue"
	PlaneAudit Plane = "audit"
	PlaneDLQ   Plane = "dlq"
)

// Subject is a parsed subject. Which fields are set depends on the plane; every set field has been
// validated. String gives the subject back.
type Subject struct {
	Plane     Plane
	Tenant    string // req, sbx, task, msg, evt, out, audit
	Workspace string // req, sbx, task, msg, evt, out; "-" is the tenant as a whole
	Principal string // req, sbx, task: who acts; msg: who sends
	Service   string // req, int
	Operation string // req, sbx, int, node
	Sandbox   string // sbx
	To        string // msg: a principal or a channel
	Entity    string // evt: task, workspace, agent, lease …
	ID        string // evt: the record's identifier
	Task      string // out
	Attempt   int    // out, from 1
	Caller    string // int, node: a service or a node
	Node      string // node
	Placement string // queue: a pool or a node
	Priority  string // queue
	Category  string // audit; dlq: the consumer that gave up
}

type field struct {
	what string
	get  func(*Subject) *string
	ok   func(string) error
}

func name(what string, get func(*Subject) *string) field {
	return field{what, get, func(s string) error { return CheckName(what, s) }}
}

func ident(what string, get func(*Subject) *string) field {
	return field{what, get, func(s string) error { return CheckID(what, s) }}
}

var (
	fTenant    = name("tenant", func(s *Subject) *string { return &s.Tenant })
	fWorkspace = field{"workspace", func(s *Subject) *string { return &s.Workspace }, CheckWorkspace}
	fPrincipal = name("principal", func(s *Subject) *string { return &s.Principal })
	fService   = name("service", func(s *Subject) *string { return &s.Service })
	fOperation = name("operation", func(s *Subject) *string { return &s.Operation })
	fSandbox   = ident("sandbox", func(s *Subject) *string { return &s.Sandbox })
	fTo        = name("recipient", func(s *Subject) *string { return &s.To })
	fEntity    = name("entity", func(s *Subject) *string { return &s.Entity })
	fID        = field{"id", func(s *Subject) *string { return &s.ID }, func(s string) error { return CheckName("id", s) }}
	fTask      = ident("task", func(s *Subject) *string { return &s.Task })
	fCaller    = name("caller", func(s *Subject) *string { return &s.Caller })
	fNode      = name("node", func(s *Subject) *string { return &s.Node })
	fPlacement = name("placement", func(s *Subject) *string { return &s.Placement })
	fPriority  = name("priority", func(s *Subject) *string { return &s.Priority })
	fCategory  = name("category", func(s *Subject) *string { return &s.Category })
)

// shapes gives the fields of each plane in the order in which they stand. The out plane has the
// attempt number as one more token, task has the fixed token "submit".
var shapes = map[Plane][]field{
	PlaneReq:   {fTenant, fWorkspace, fPrincipal, fService, fOperation},
	PlaneSbx:   {fTenant, fWorkspace, fSandbox, fPrincipal, fOperation},
	PlaneTask:  {fTenant, fWorkspace, fPrincipal},
	PlaneMsg:   {fTenant, fWorkspace, fTo, fPrincipal},
	PlaneEvt:   {fTenant, fWorkspace, fEntity, fID},
	PlaneOut:   {fTenant, fWorkspace, fTask},
	PlaneInt:   {fCaller, fService, fOperation},
	PlaneNode:  {fNode, fCaller, fOperation},
	PlaneQueue: {fPlacement, fPriority},
	PlaneAudit: {fTenant, fCategory},
	PlaneDLQ:   {fTenant, fCategory},
}

// Make validates s and gives its subject. The error names the field that is wrong.
func (s Subject) Make() (string, error) {
	fs, ok := shapes[s.Plane]
	if !ok {
		return "", fmt.Errorf("no plane %q", s.Plane)
	}
	var b strings.Builder
	b.WriteString(Prefix)
	b.WriteString(string(s.Plane))
	for _, f := range fs {
		v := *f.get(&s)
		if err := f.ok(v); err != nil {
			return "", err
		}
		b.WriteByte('.')
		b.WriteString(v)
	}
	switch s.Plane {
	case PlaneTask:
		b.WriteString(".submit")
	case PlaneOut:
		if s.Attempt < 1 {
			return "", fmt.Errorf("attempt %d must be 1 or more", s.Attempt)
		}
		b.WriteByte('.')
		b.WriteString(strconv.Itoa(s.Attempt))
	}
	return b.String(), nil
}

// ParseSubject reads a subject that came from outside and validates every field of it.
func ParseSubject(subject string) (Subject, error) {
	if len(subject) > 1024 {
		return Subject{}, fmt.Errorf("subject of %d bytes is too long", len(subject))
	}
	rest, ok := strings.CutPrefix(subject, Prefix)
	if !ok {
		return Subject{}, fmt.Errorf("subject %q does not begin with %s", clip(subject), Prefix)
	}
	tok := strings.Split(rest, ".")
	s := Subject{Plane: Plane(tok[0])}
	fs, ok := shapes[s.Plane]
	if !ok {
		return Subject{}, fmt.Errorf("subject %q is of no known plane", clip(subject))
	}
	tok = tok[1:]
	want := len(fs)
	if s.Plane == PlaneTask || s.Plane == PlaneOut {
		want++
	}
	if len(tok) != want {
		return Subject{}, fmt.Errorf("subject %q has %d fields after %s, not %d", clip(subject), len(tok), s.Plane, want)
	}
	for i, f := range fs {
		if err := f.ok(tok[i]); err != nil {
			return Subject{}, err
		}
		*f.get(&s) = tok[i]
	}
	switch s.Plane {
	case PlaneTask:
		if tok[len(tok)-1] != "submit" {
			return Subject{}, fmt.Errorf("subject %q does not end with submit", clip(subject))
		}
	case PlaneOut:
		n, err := strconv.Atoi(tok[len(tok)-1])
		if err != nil || n < 1 || strconv.Itoa(n) != tok[len(tok)-1] {
			return Subject{}, fmt.Errorf("attempt %q must be a number from 1", clip(tok[len(tok)-1]))
		}
		s.Attempt = n
	}
	return s, nil
}

// Req is the subject of an operation that a principal asks of a service.
func Req(tenant, workspace, principal, service, operation string) (string, error) {
	return Subject{Plane: PlaneReq, Tenant: tenant, Workspace: workspace, Principal: principal, Service: service, Operation: operation}.Make()
}

// Sbx is the subject of an operation on one sandbox.
func Sbx(tenant, workspace, sandbox, principal, operation string) (string, error) {
	return Subject{Plane: PlaneSbx, Tenant: tenant, Workspace: workspace, Sandbox: sandbox, Principal: principal, Operation: operation}.Make()
}

// Submit is the subject to which a principal publishes a task.
func Submit(tenant, workspace, principal string) (string, error) {
	return Subject{Plane: PlaneTask, Tenant: tenant, Workspace: workspace, Principal: principal}.Make()
}

// Msg is the subject of a message between principals, or to a channel.
func Msg(tenant, workspace, to, from string) (string, error) {
	return Subject{Plane: PlaneMsg, Tenant: tenant, Workspace: workspace, To: to, Principal: from}.Make()
}

// Evt is the subject of a record: its last message is the state, the earlier ones its history.
func Evt(tenant, workspace, entity, id string) (string, error) {
	return Subject{Plane: PlaneEvt, Tenant: tenant, Workspace: workspace, Entity: entity, ID: id}.Make()
}

// Out is the subject of an attempt's live output.
func Out(tenant, workspace, task string, attempt int) (string, error) {
	return Subject{Plane: PlaneOut, Tenant: tenant, Workspace: workspace, Task: task, Attempt: attempt}.Make()
}

// Int is the subject of an operation that a service or a node asks of a service.
func Int(caller, service, operation string) (string, error) {
	return Subject{Plane: PlaneInt, Caller: caller, Service: service, Operation: operation}.Make()
}

// Node is the subject of an operation that a service asks of one node.
func Node(node, caller, operation string) (string, error) {
	return Subject{Plane: PlaneNode, Node: node, Caller: caller, Operation: operation}.Make()
}

// Queue is the subject on which attempts wait for a node.
func Queue(placement, priority string) (string, error) {
	return Subject{Plane: PlaneQueue, Placement: placement, Priority: priority}.Make()
}

// Audit is the subject of an audit entry.
func Audit(tenant, category string) (string, error) {
	return Subject{Plane: PlaneAudit, Tenant: tenant, Category: category}.Make()
}

// DLQ is the subject of a dead letter: what a consumer could not decode or deliver.
func DLQ(tenant, consumer string) (string, error) {
	return Subject{Plane: PlaneDLQ, Tenant: tenant, Category: consumer}.Make()
}
