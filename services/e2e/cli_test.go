package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestCommandLine types what the README and a person of the first days would, on a whole mesh.
func TestCommandLine(t *testing.T) {
	w := boot(t)
	t.Run("run passes the command's code and streams", func(t *testing.T) {
		stdout, stderr, code := w.weft("", "run", "--template", "base", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7")
		require.Equal(t, 7, code)
		require.Equal(t, "out\n", stdout)
		require.Contains(t, stderr, "err\n")
		_, stderr, code = w.weft("", "run", "--template", "base", "--", "no-such-command")
		require.Equal(t, 127, code)
		require.Contains(t, stderr, "no-such-command")
		_, stderr, code = w.weft("", "run", "nobody")
		require.Equal(t, 3, code)
		require.Contains(t, stderr, "nobody")
	})
	t.Run("logs and events", func(t *testing.T) {
		id := strings.TrimSpace(w.must("run", "--detach", "--template", "base", "--", "/bin/sh", "-c", "echo a; echo b >&2; echo c"))
		_, _, code := w.weft("", "task", "wait", id)
		require.Zero(t, code)
		stdout, stderr, _ := w.weft("", "task", "logs", id)
		require.Equal(t, "a\nc\n", stdout)
		require.Contains(t, stderr, "b\n")
		require.Equal(t, workspace.Complete, item[workspace.Task](t, w.must("task", "get", id, "--json")).State)
		var seen []string
		for _, line := range strings.Split(strings.TrimSpace(w.must("events", "--since", "1h", "--entity", "task", "--id", id, "--json")), "\n") {
			var v struct {
				Schema, Type string
				Item         client.Event
			}
			require.NoError(t, json.Unmarshal([]byte(line), &v), line)
			require.Equal(t, "weft.cli.v1", v.Schema)
			seen = append(seen, v.Item.Event)
		}
		require.Subset(t, seen, []string{"submitted", "queued", "running", "complete"})
		require.NotEmpty(t, items[workspace.Task](t, w.must("task", "list", "--json")))
	})
	t.Run("files", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "src", "d"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "src", "one.txt"), []byte("1\n"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "src", "d", "two.txt"), []byte("2\n"), 0o644))
		w.must("files", "put", filepath.Join(dir, "src"), "src")
		snap := item[filesystem.Snapshot](t, w.must("snapshot", "create", "-m", "first", "--json"))
		require.Equal(t, "2\n", w.must("run", "--template", "base", "--", "/bin/sh", "-c", "cat src/d/two.txt; echo 3 > src/three.txt"))
		w.must("files", "get", "src", filepath.Join(dir, "out"))
		three, err := os.ReadFile(filepath.Join(dir, "out", "three.txt"))
		require.NoError(t, err)
		require.Equal(t, "3\n", string(three))
		require.Contains(t, w.must("snapshot", "diff", snap.ID), "+ src/three.txt")
		w.must("snapshot", "restore", snap.ID)
		_, _, code := w.weft("", "files", "cat", "src/three.txt")
		require.Equal(t, 3, code)
	})
	t.Run("apply", func(t *testing.T) { testApply(t, w) })
	t.Run("secrets", func(t *testing.T) { testSecrets(t, w) })
	t.Run("dead letters", func(t *testing.T) {
		subject, err := schemas.Submit("default", "default", "alice")
		require.NoError(t, err)
		_, err = w.as("alice").Conn().PublishMsg(ctx(t, 10*time.Second), &nats.Msg{Subject: subject, Data: []byte("\xff{")})
		require.NoError(t, err)
		var ls []workspace.DeadLetter
		require.Eventually(t, func() bool { ls = deadLetters(t, w); return len(ls) == 1 }, time.Minute, 50*time.Millisecond)
		require.Equal(t, subject, ls[0].Subject)
		require.NotEmpty(t, ls[0].Reason)
		w.must("dlq", "redrive", fmt.Sprint(ls[0].Sequence))
		require.Eventually(t, func() bool { now := deadLetters(t, w); return len(now) == 1 && now[0].Sequence > ls[0].Sequence }, time.Minute, 50*time.Millisecond, "it is as bad as before")
	})
	t.Run("memory, messages, nodes, health", func(t *testing.T) {
		w.must("memory", "add", "--key", "sky", "--text", "the sky is blue")
		require.Contains(t, w.must("memory", "search", "blue"), "the sky is blue")
		w.must("msg", "send", "ch-all", "hello")
		require.Contains(t, w.must("msg", "read", "--channel", "ch-all"), "hello")
		ns := items[workspace.NodeRecord](t, w.must("node", "list", "--json"))
		require.Len(t, ns, 1)
		require.Equal(t, "n1", ns[0].Node)
		w.must("check")
	})
	t.Run("a failure with --json", func(t *testing.T) {
		stdout, stderr, code := w.weft("", "task", "get", "0123456789abcdefghij", "--json")
		require.Equal(t, 3, code)
		require.Empty(t, stdout)
		var v struct {
			Schema string
			Error  struct {
				Code, Message string
				Exit          int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(stderr), &v), stderr)
		require.Equal(t, "weft.cli.v1", v.Schema)
		require.Equal(t, "not_found", v.Error.Code)
		require.Equal(t, 3, v.Error.Exit)
	})
	t.Run("completion", func(t *testing.T) {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			require.Contains(t, w.must("completion", shell), "weft")
		}
		require.Contains(t, w.must("__complete", "sand"), "sandbox")
	})
	t.Run("a task's trace", func(t *testing.T) {
		id := strings.TrimSpace(w.must("run", "--detach", "--template", "base", "--", "true"))
		w.must("task", "wait", id)
		var drawn string
		require.Eventually(t, func() bool { // each process writes its spans a little later
			drawn = w.must("trace", id)
			return strings.Contains(drawn, "prepare")
		}, time.Minute, 100*time.Millisecond)
		require.Regexp(t, `(?m)^weft (run|task submit) `, drawn, "it begins with what was typed")
	})
}

func testApply(t *testing.T, w *world) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`kind: Agent
name: greeter
spec: {template: base, entrypoint: [sh, -c, 'echo hello $WHO; cat $WEFT_INPUT'], env: {WHO: you}}
---
kind: Trigger
name: on-greeting
spec: {message: {to: greeter, from: [alice]}, start: {agent: greeter}}
`), 0o644))
	for _, outcome := range []string{"created", "unchanged"} {
		stdout := w.must("apply", "-f", file)
		require.Contains(t, stdout, "agent greeter "+outcome)
		require.Contains(t, stdout, "trigger on-greeting "+outcome)
	}
	require.Equal(t, "hello you\n{\"n\":1}", w.must("run", "greeter", "--input", `{"n":1}`))
	w.must("msg", "send", "greeter", "hi")
	c := w.as("alice")
	require.Eventually(t, func() bool {
		ts, err := c.Tasks(ctx(t, 5*time.Second), workspace.TaskList{Agent: "greeter", States: []workspace.State{workspace.Complete}}, 0)
		return err == nil && len(ts) == 2 && (ts[0].Trigger == "on-greeting")
	}, 30*time.Second, 50*time.Millisecond)
}

func testSecrets(t *testing.T, w *world) {
	const value = "c0rrect-h0rse"
	sum := sha256.Sum256([]byte(value))
	_, stderr, code := w.weft(value+"\n", "secret", "put", "db-pass")
	require.Zero(t, code, stderr)
	w.must("secret", "put", "stamp", "--transit")
	require.NotContains(t, w.must("secret", "list", "--json"), value)
	_, stderr, code = w.weft(`{"kind": "Agent", "name": "user", "spec": {"template": "python", "secrets": [{"name": "db-pass", "as": "file"},
		{"name": "db-pass", "as": "env", "env": "DB_PASS"}, {"name": "stamp", "as": "vault"}], "entrypoint": ["python3", "-c", `+quote(t, `
import base64, hashlib, json, os, urllib.error, urllib.request
v = open("/run/secrets/db-pass").read()
assert v == os.environ["DB_PASS"] and hashlib.sha256(v.encode()).hexdigest() == "`+hex.EncodeToString(sum[:])+`"
assert oct(os.stat("/run/secrets/db-pass").st_mode & 0o777) == "0o400"
print("it is", v)
def ask(path, body):
    r = urllib.request.Request(os.environ["VAULT_ADDR"] + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
    return json.load(urllib.request.urlopen(r, timeout=10))
print(ask("/v1/transit/sign/stamp", {"input": base64.b64encode(b"report").decode()})["data"]["signature"])
for path in ("/v1/transit/sign/other", "/v1/sys/mounts", "/v1/transit/keys/stamp/config"):
    try: ask(path, {}); print("allowed", path)
    except urllib.error.HTTPError as e: assert e.code == 403, (path, e.code)
`)+`]}}`, "apply", "-f", "-")
	require.Zero(t, code, stderr)
	_, stderr, code = w.weft("", "run", "user")
	require.NotZero(t, code, "without a grant")
	require.Contains(t, stderr, "db-pass")
	w.must("secret", "grant", "db-pass", "--agent", "user", "--as", "file", "--as", "env")
	w.must("secret", "grant", "stamp", "--agent", "user", "--as", "vault")
	stdout, stderr, code := w.weft("", "run", "user")
	require.Zero(t, code, stdout+stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 2, stdout)
	require.NotContains(t, stdout, value)
	signed := filepath.Join(t.TempDir(), "report")
	require.NoError(t, os.WriteFile(signed, []byte("report"), 0o644))
	w.must("secret", "verify", "stamp", "--data", signed, "--signature", lines[1])
	require.NoError(t, os.WriteFile(signed, []byte("rep0rt"), 0o644))
	_, _, code = w.weft("", "secret", "verify", "stamp", "--data", signed, "--signature", lines[1])
	require.NotZero(t, code, "tampered with")
	for _, l := range items[secrets.Lease](t, w.must("secret", "leases", "--json")) {
		require.Equal(t, "revoked", l.State)
	}
	grants := items[secrets.Grant](t, w.must("secret", "grants", "--json"))
	require.Len(t, grants, 2)
	for _, g := range grants {
		w.must("secret", "revoke", g.ID)
	}
	_, _, code = w.weft("", "run", "user")
	require.NotZero(t, code, "after the grants were taken back")
	found, err := exec.Command("grep", "-rl", "--binary-files=text", value, filepath.Join(w.dir, "nats"), filepath.Join(w.dir, "files"), filepath.Join(w.dir, "runtime"), filepath.Join(w.dir, "traces")).Output()
	require.Error(t, err, "the value lies in %s", found) // grep finds nothing: 1
	require.NotContains(t, w.logs(), value)
}

func quote(t testing.TB, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	require.NoError(t, err)
	return string(b)
}
