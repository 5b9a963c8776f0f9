package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestInsideTheMesh: a sandbox reaches the mesh as its agent, and nothing more, with no credential in sight.
func TestInsideTheMesh(t *testing.T) {
	w := boot(t)
	w.must("tenant", "create", "rival")
	w.must("workspace", "create", "other")
	c := w.as("alice")
	t.Run("as its agent", func(t *testing.T) { testAsAgent(t, c) })
	t.Run("beyond its permissions", func(t *testing.T) { testBeyond(t, c) })
}

func testAsAgent(t *testing.T, c *client.Client) {
	_, err := c.Agents().Put(ctx(t, 10*time.Second), workspace.Agent{Name: "mate", Template: "base", Entrypoint: []string{"true"}}, 0)
	require.NoError(t, err)
	_, err = c.Agents().Put(ctx(t, 10*time.Second), workspace.Agent{Name: "scout", Template: "base", Entrypoint: []string{"/bin/sh", "-c", strings.Join([]string{
		`weft memory add --kind semantic --key color --text "the colour is teal" || exit 11`,
		`weft memory search teal | grep -q teal || exit 12`,
		`echo hello | weft msg send alice || exit 13`,
		`weft secret list 2>&1; test $? = 4 || exit 14`,
		`env | grep -iE 'jwt|seed|nkey|vault_token' && exit 15`,
		`weft run mate || exit 16`,
		`weft run mate -e X=1 2>&1; test $? = 4 || exit 17`, // what it runs is not for others to change
		`true`,
	}, "\n")}}, 0)
	require.NoError(t, err)
	task := finish(t, c, workspace.Submission{Agent: "scout"})
	require.Equal(t, workspace.Complete, task.State, "exit %+v\n%s%s", task.Attempt.Outcome, output(t, c, task.ID, "stdout"), output(t, c, task.ID, "stderr"))
	msgs, err := c.Messages(ctx(t, 10*time.Second), workspace.MessagesRequest{})
	require.NoError(t, err)
	require.Len(t, msgs, 1)
	require.Equal(t, "scout", msgs[0].From)
	require.Equal(t, "hello", strings.TrimSpace(string(msgs[0].Body)))
}

// rawClient speaks NATS by hand: for each line of its input it says what the server answers to it.
const rawClient = `
import json, os, socket, sys
tries = json.load(open(os.environ["WEFT_INPUT"]))
s = socket.create_connection(("127.0.0.1", 4222), 10)
f = s.makefile("rb")
info = json.loads(f.readline().split(b" ", 1)[1])
forged = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "name": "raw", "lang": "raw", "version": "0",
          "protocol": 1, "user": "admin", "pass": "admin", "jwt": "forged", "sig": "forged", "nkey": "forged", "auth_token": "forged"}
s.sendall(b"CONNECT " + json.dumps(forged).encode() + b"\r\nPING\r\n")
def until_pong():
    said = []
    while True:
        line = f.readline()
        if not line: return said + ["closed"]
        if line.startswith(b"PONG"): return said
        if line.startswith(b"PING"): s.sendall(b"PONG\r\n")
        elif line.startswith(b"MSG"):
            f.read(int(line.split()[-1]) + 2)
        elif line.startswith(b"HMSG"):
            f.read(int(line.split()[-1]) + 2)
        elif line.startswith(b"-ERR"): said.append(line.decode().strip())
login = until_pong()
out = {"info": sorted(info), "login": login, "said": {}}
for i, t in enumerate(tries["lines"]):
    verb, subject = t.split(" ", 1)
    if verb == "SUB": s.sendall(("SUB %s %d\r\n" % (subject, i + 1)).encode())
    else: s.sendall(("PUB %s 2\r\n{}\r\n" % subject).encode())
    s.sendall(b"PING\r\n")
    out["said"][t] = until_pong()
s.sendall(b"CONNECT " + json.dumps(forged).encode() + b"\r\nPING\r\n")
out["again"] = until_pong()
print(json.dumps(out))
`

func testBeyond(t *testing.T, c *client.Client) {
	const sandbox = "0123456789abcdefghij"
	_, err := c.Agents().Put(ctx(t, 10*time.Second), workspace.Agent{Name: "raw", Template: "python", Entrypoint: []string{"python3", "-c", rawClient}}, 0)
	require.NoError(t, err)
	forbidden := []string{
		// as somebody else
		"PUB weft.v1.msg.default.default.bob.alice",
		"PUB weft.v1.task.default.default.alice.submit",
		"PUB weft.v1.req.default.default.alice.memory.search",
		// in another workspace, in another tenant
		"PUB weft.v1.task.default.other.raw.submit",
		"PUB weft.v1.msg.default.other.bob.raw",
		"PUB weft.v1.req.default.other.raw.memory.search",
		"PUB weft.v1.req.default.-.raw.workspace-manager.workspace-list",
		"PUB weft.v1.task.rival.default.raw.submit",
		"PUB weft.v1.req.rival.default.raw.memory.search",
		"PUB weft.v1.msg.rival.default.bob.raw",
		// what is for people
		"PUB weft.v1.req.default.default.raw.secrets.list",
		"PUB weft.v1.req.default.default.raw.secrets.put",
		"PUB weft.v1.req.default.default.raw.workspace-manager.agent-put",
		"PUB weft.v1.req.default.default.raw.workspace-manager.sandbox-create",
		"PUB weft.v1.req.default.default.raw.filesystem.put",
		"PUB weft.v1.req.default.default.raw.filesystem.remove",
		"PUB weft.v1.sbx.default.default." + sandbox + ".raw.exec",
		// records, output, the queue, the audit
		"PUB weft.v1.evt.default.default.task." + sandbox,
		"PUB weft.v1.out.default.default." + sandbox + ".1",
		"PUB weft.v1.queue.default.normal",
		"PUB weft.v1.audit.default.exec",
		"PUB weft.v1.dlq.default.submissions",
		// what services and nodes say to one another
		"PUB weft.v1.int.workspace-manager.filesystem.delete-workspace",
		"PUB weft.v1.int.n1.workspace-manager.claim",
		"PUB weft.v1.int.n1.secrets.issue",
		"PUB weft.v1.int.operator.workspace-manager.tenant-put",
		"PUB weft.v1.node.n1.workspace-manager.sandbox-kill",
		"PUB $SRV.INFO", "PUB $SRV.PING",
		// JetStream, and the server itself
		"PUB $JS.API.INFO", "PUB $JS.API.STREAM.NAMES", "PUB $JS.API.STREAM.MSG.GET.LOG-default", "PUB $JS.API.STREAM.PURGE.LOG-default",
		"PUB $JS.API.CONSUMER.CREATE.LOG-default", "PUB $JS.API.CONSUMER.MSG.NEXT.QUEUE.default", "PUB JS.weft.API.CONSUMER.MSG.NEXT.QUEUE.default",
		"PUB $JS.ACK.QUEUE.default.1.1.1.1.1", "PUB $JS.FC.x", "PUB $KV.leases.x",
		"PUB $SYS.REQ.SERVER.PING", "PUB $SYS.REQ.CLAIMS.UPDATE", "PUB $SYS.ACCOUNT.x.CLAIMS.UPDATE",
		// replies that are somebody else's
		"PUB _INBOX.alice.x", "PUB _R_.x", "SUB _R_.>",
		"SUB _INBOX.>", "SUB _INBOX.alice.>", "SUB _INBOX.raw.>", "SUB _INBOX.raw.*.>", "SUB _INBOX.raw." + sandbox + ".>",
		// more than its own by wildcard
		"SUB >", "SUB *.>", "SUB weft.>", "SUB weft.v1.>", "SUB weft.v1.evt.>", "SUB weft.v1.evt.default.>", "SUB weft.v1.evt.default.*.>", "SUB weft.v1.evt.default.other.>",
		"SUB weft.v1.evt.rival.>", "SUB weft.v1.*.default.default.>", "SUB weft.v1.out.>", "SUB weft.v1.out.rival.default.>",
		"SUB weft.v1.msg.default.default.alice.*", "SUB weft.v1.task.>", "SUB weft.v1.req.>", "SUB weft.v1.sbx.>", "SUB weft.v1.int.>", "SUB weft.v1.node.>",
		"SUB $SRV.>", "SUB $SYS.>", "SUB $JS.>", "SUB $KV.>", "SUB $JS.EVENT.ADVISORY.>",
	}
	allowed := []string{
		"SUB weft.v1.evt.default.default.>", "SUB weft.v1.out.default.default.>",
		"PUB weft.v1.msg.default.default.alice.raw", "PUB weft.v1.req.default.default.raw.memory.search",
		// A reply subject that is no inbox: the request may be made, nothing may come of it.
		"PUB weft.v1.req.default.default.raw.workspace-manager.agent-list weft.v1.evt.default.default.task." + sandbox,
		"PUB weft.v1.req.default.default.raw.memory.list weft.v1.queue.default.normal",
	}
	in, err := json.Marshal(map[string]any{"lines": append(append([]string{}, allowed...), forbidden...)})
	require.NoError(t, err)
	task := finish(t, c, workspace.Submission{Agent: "raw", Input: in})
	require.Equal(t, workspace.Complete, task.State, "%+v %s", task.Attempt.Outcome, output(t, c, task.ID, "stderr"))
	var got struct {
		Info, Login, Again []string
		Said               map[string][]string
	}
	require.NoError(t, json.Unmarshal([]byte(output(t, c, task.ID, "stdout")), &got))
	require.Empty(t, got.Login, "what it brings along is of no account")
	for _, f := range []string{"nonce", "client_ip", "connect_urls", "host", "port", "cluster"} {
		require.NotContains(t, got.Info, f)
	}
	for _, line := range allowed {
		require.Empty(t, got.Said[line], line)
	}
	for _, line := range forbidden {
		require.Len(t, got.Said[line], 1, line)
		require.Contains(t, got.Said[line][0], "Permissions Violation", line)
	}
	require.Contains(t, got.Again, "closed", "a second login on the connection")
	_, err = c.Task(ctx(t, 10*time.Second), sandbox)
	require.Equal(t, fault.NotFound, fault.CodeOf(err), "an answer became a record")
	require.Equal(t, workspace.Complete, finish(t, c, shell("true")).State, "the queue is in order")
}
