package accounts

import (
	"github.com/weftmesh/weft/schemas"
)

// Role is a set of permissions. A signing key mints the users of exactly one role.
type Role struct {
	Name string
	// Pub and Sub list the subjects allowed; everything else is denied. {{name()}} is the user's name,
	// {{tag(x)}} one of its tags; the server fills them in from the user's JWT.
	Pub, Sub []string
}

// Names of the roles of tenants and nodes. A service's role has the service's name.
const (
	RoleUser  = "user"  // a person or program of a tenant: any workspace of it
	RoleAgent = "agent" // one sandbox: its workspace, its principal, the operations of an agent
	RoleNode  = "node"
	RoleAdmin = "provisioner" // applies streams and buckets, nothing else
)

// NodeAPI is the prefix under which a node reaches the little of JetStream's API that it may use. Under
// $JS.API its own account, which has no JetStream, would answer.
const NodeAPI = "JS.weft.API"

// Tags of users.
const (
	TagWorkspace = "workspace"
	TagSandbox   = "sandbox"
	TagPool      = "pool"
)

// inbox is what every user may subscribe to for replies: its own.
const inbox = "_INBOX.{{name()}}.>"

// InboxPrefix is where the user called name receives replies.
func InboxPrefix(name string) string { return "_INBOX." + name }

// SandboxInboxPrefix is the same for a sandbox of the agent called name.
func SandboxInboxPrefix(name, sandbox string) string { return "_INBOX." + name + "." + sandbox }

// replies is where services may answer: inboxes of their own account, and the reply subjects that the
// server makes for requests from other accounts. Nothing else, so that a caller who names a record as
// its reply subject gets nothing written there.
var replies = []string{"_INBOX.>", "_R_.>"}

// owned lists the entities whose records a service alone writes.
var owned = map[string][]string{
	schemas.WorkspaceManager: {"tenant", "workspace", "agent", "template", "trigger", "task", "gather", "sandbox", "node", "pool", "claim"},
	schemas.Filesystem:       {"head", "snapshot", "overlay", "artifact"},
	schemas.Secrets:          {"secret", "grant", "lease"},
	schemas.Memory:           {"memory"},
}

// calls lists the services that a service asks over the int plane.
var calls = map[string][]string{
	schemas.WorkspaceManager: {schemas.Filesystem, schemas.Secrets, schemas.Memory},
	schemas.Filesystem:       {schemas.WorkspaceManager},
	schemas.Secrets:          {schemas.WorkspaceManager},
	schemas.Memory:           {schemas.WorkspaceManager},
}

// ServiceRole is the role of one of the services of the WEFT account.
func ServiceRole(service string) Role {
	r := Role{Name: service}
	r.Sub = append(r.Sub, inbox, "$SRV.>",
		"weft.v1.req.*.*.*."+service+".>",
		"weft.v1.int.*."+service+".>")
	r.Pub = append(r.Pub, replies...)
	r.Pub = append(r.Pub, "$JS.ACK.>", "$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*",
		"$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.CONSUMER.DELETE.*.*",
		"weft.v1.audit.*.*")
	for _, e := range owned[service] {
		r.Pub = append(r.Pub,
			"weft.v1.evt.*.*."+e+".*",
			"$JS.API.CONSUMER.CREATE.*.*.weft.v1.evt.*.*."+e+".*")
	}
	for _, s := range calls[service] {
		r.Pub = append(r.Pub, "weft.v1.int."+service+"."+s+".>")
	}
	switch service {
	case schemas.WorkspaceManager:
		// It owns queueing, messages and the tenants' streams, so it alone has the stream API.
		r.Pub = append(r.Pub, "$JS.API.STREAM.>", "$JS.API.CONSUMER.>", "$JS.API.DIRECT.GET.>", "$KV.>", "$JS.FC.>",
			"weft.v1.queue.*.*", "weft.v1.node.*."+service+".>", "weft.v1.dlq.*.*", "weft.v1.msg.*.*.*.*",
			"weft.v1.task.*.*.*.submit")
		r.Sub = append(r.Sub, "$KV.>")
	case schemas.Filesystem, schemas.Secrets, schemas.Memory:
		// Purging a deleted workspace's records takes the stream's purge.
		r.Pub = append(r.Pub, "$JS.API.STREAM.PURGE.*")
	}
	return r
}

// weftRoles are all roles of the WEFT account.
func weftRoles() []Role {
	rs := []Role{}
	for _, s := range []string{schemas.WorkspaceManager, schemas.Filesystem, schemas.Secrets, schemas.Memory} {
		rs = append(rs, ServiceRole(s))
	}
	return append(rs,
		Role{Name: schemas.Operator,
			Pub: []string{"weft.v1.int.operator.*.*", "$SRV.>"},
			Sub: []string{inbox}},
		Role{Name: RoleAdmin,
			Pub: []string{"$JS.API.>", "$KV.>"},
			Sub: []string{inbox}},
	)
}

// nodeRole is what a node may do inside NODES: serve its subjects, ask services as itself, publish
// output and audit entries, and pull from the queue consumers of its pool and of its own name.
func nodeRole() Role {
	return Role{Name: RoleNode,
		Pub: append([]string{
			"weft.v1.int.{{name()}}.*.*",
			"weft.v1.out.*.*.*.*",
			"weft.v1.audit.*.*",
			NodeAPI + ".CONSUMER.MSG.NEXT.QUEUE.{{tag(pool)}}", NodeAPI + ".CONSUMER.MSG.NEXT.QUEUE.{{name()}}",
			NodeAPI + ".CONSUMER.INFO.QUEUE.{{tag(pool)}}", NodeAPI + ".CONSUMER.INFO.QUEUE.{{name()}}",
			"$JS.ACK.QUEUE.{{tag(pool)}}.>", "$JS.ACK.QUEUE.{{name()}}.>",
		}, replies...),
		Sub: []string{inbox, "$SRV.>", "weft.v1.sbx.>", "weft.v1.node.{{name()}}.>"},
	}
}

// agentOps lists what an agent may ask of each service. Definitions, grants and secrets are not its own to change.
var agentOps = map[string][]string{
	schemas.WorkspaceManager: {"task-get", "task-list", "task-cancel", "task-history", "task-output", "events", "messages", "agent-get", "agent-list"},
	schemas.Filesystem:       {"list", "stat", "get", "snapshot-list", "snapshot-diff"},
	schemas.Memory:           {"add", "supersede", "get", "search", "list", "history", "context", "forget"},
}

// tenantRoles are the roles of one tenant's account.
func tenantRoles(tenant string) []Role {
	user := Role{Name: RoleUser,
		Pub: []string{
			"weft.v1.req." + tenant + ".*.{{name()}}.*.>",
			"weft.v1.sbx." + tenant + ".*.*.{{name()}}.>",
			"weft.v1.task." + tenant + ".*.{{name()}}.submit",
			"weft.v1.msg." + tenant + ".*.*.{{name()}}",
		},
		Sub: []string{inbox, "weft.v1.evt." + tenant + ".>", "weft.v1.out." + tenant + ".>"},
	}
	const ws = "{{tag(workspace)}}"
	agent := Role{Name: RoleAgent,
		Pub: []string{
			"weft.v1.task." + tenant + "." + ws + ".{{name()}}.submit",
			"weft.v1.msg." + tenant + "." + ws + ".*.{{name()}}",
		},
		Sub: []string{
			"_INBOX.{{name()}}.{{tag(sandbox)}}.>",
			"weft.v1.evt." + tenant + "." + ws + ".>",
			"weft.v1.out." + tenant + "." + ws + ".>",
		},
	}
	for _, svc := range []string{schemas.WorkspaceManager, schemas.Filesystem, schemas.Memory} {
		for _, op := range agentOps[svc] {
			agent.Pub = append(agent.Pub, "weft.v1.req."+tenant+"."+ws+".{{name()}}."+svc+"."+op)
		}
		// Streams opened by such an operation go on below this token.
		agent.Pub = append(agent.Pub, "weft.v1.req."+tenant+"."+ws+".{{name()}}."+svc+".s.>")
	}
	return []Role{user, agent}
}
