package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// poolWait is how long a pool may take to come to what is wanted, on a machine with ten times too much to do.
const poolWait = 120 * time.Second

// TestPools: a shared pool through its life. What a task and a sandbox get from it is theirs alone, it refills, its
// members follow their template, and with the pool they go.
func TestPools(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	w.must("pool", "set", "base", "--min", "2", "--max", "4", "--shared", "--wait")
	first := poolState(t, c, "base")
	require.GreaterOrEqual(t, first.Ready, 2)
	require.Equal(t, []uint64{0, 0}, []uint64{first.Claims, first.Misses})
	require.Contains(t, w.must("pool", "list"), "all tenants")

	_, err := c.PutFile(ctx(t, 30*time.Second), filesystem.PutRequest{Path: "readme.txt"}, strings.NewReader("read me\n"))
	require.NoError(t, err)
	const look = "cat /workspace/readme.txt; echo $MOOD; hostname; id -u; echo mine > /tmp/mine; ls /tmp"
	env := map[string]string{"MOOD": "calm"}
	sub := shell(look)
	sub.Env = env
	task := finish(t, c, sub)
	require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
	box, err := c.CreateSandbox(ctx(t, 90*time.Second), workspace.SandboxCreate{Template: "base", Env: env, Claim: "session"})
	require.NoError(t, err)
	again, err := c.CreateSandbox(ctx(t, 90*time.Second), workspace.SandboxCreate{Template: "base", Claim: "session"})
	require.NoError(t, err)
	require.Equal(t, box.ID, again.ID, "one claim is one sandbox")

	for id, out := range map[string]string{task.Attempt.Sandbox: output(t, c, task.ID, "stdout"), box.ID: execute(t, c, box.ID, "", "/bin/sh", "-c", look).out} {
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Len(t, lines, 5, "%q", out)
		require.Equal(t, []string{"read me", "calm", "alice", "1000", "mine"}, lines, "sandbox %s: all of it was bound when it was claimed, and nobody was in it before", id)
	}
	st := untilPool(t, c, "both were claims, and the pool is full again", func(s workspace.PoolState) bool {
		return s.Claims+s.Misses >= 2 && s.Ready >= 2 && s.Making == 0
	})
	require.Equal(t, []uint64{2, 0}, []uint64{st.Claims, st.Misses})

	// Another template: the members that wait are replaced by such as it says now.
	changed := time.Now()
	file := filepath.Join(t.TempDir(), "base.json")
	base := sharedTemplate(t, w, "base")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"kind": "Template", "name": "base", "spec": {"image": %q, "level": %q, "seccomp": "python", "resources": {"memory": "96MiB", "pids": 77}}}`, base.Image, base.Level), 0o644))
	require.Contains(t, w.must("apply", "--shared", "--dry-run", "-f", file), "template base would be changed")
	w.must("apply", "--shared", "-f", file)
	untilPool(t, c, "its members are made from the new template", func(s workspace.PoolState) bool {
		return s.Ready >= 2 && s.Oldest != nil && s.Oldest.After(changed)
	})
	next, err := c.CreateSandbox(ctx(t, 90*time.Second), workspace.SandboxCreate{Template: "base"})
	require.NoError(t, err)
	require.Equal(t, []any{int64(77), "python"}, []any{next.Run.Resources.PIDs, next.Run.Seccomp})
	st = untilPool(t, c, "it was a claim", func(s workspace.PoolState) bool { return s.Claims+s.Misses >= 3 })
	require.Equal(t, []uint64{3, 0}, []uint64{st.Claims, st.Misses})

	manifests(t, w, c, base.Image)

	// Without the pool its members go; the sandboxes that were handed out stay until they end.
	w.must("pool", "delete", "base", "--shared")
	require.Equal(t, "calm\n", execute(t, c, box.ID, "", "/bin/sh", "-c", "echo $MOOD").out)
	for _, id := range []string{box.ID, next.ID} {
		_, err := c.KillSandbox(ctx(t, 30*time.Second), id)
		require.NoError(t, err)
	}
	var left []string
	require.Eventually(t, func() bool { left = sandboxesLeft(t, w.dir); return len(left) == 0 }, poolWait, 200*time.Millisecond, "still there: %v", left)
	require.NotContains(t, w.must("pool", "list", "--shared"), "base")
}

// manifests is the same with documents of agent-sandbox: a template, its pool, and a claim that gets a member.
func manifests(t *testing.T, w *world, c *client.Client, image string) {
	dir := t.TempDir()
	apply := func(kind, name, spec string) string {
		file := filepath.Join(dir, kind)
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: extensions.agents.x-k8s.io/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: default}\nspec: %s\n", kind, name, spec), 0o644))
		return w.must("apply", "-f", file)
	}
	require.Contains(t, apply("SandboxTemplate", "tool", fmt.Sprintf(`{podTemplate: {spec: {containers: [{image: %q, env: [{name: MOOD, value: calm}], resources: {limits: {cpu: 500m, memory: 64Mi}}}]}}}`, image)), "template tool created")
	require.Contains(t, apply("SandboxWarmPool", "tools", "{replicas: 1, sandboxTemplateRef: {name: tool}}"), "pool tool created")
	untilPoolOf(t, c, "tool", "it is full", func(s workspace.PoolState) bool { return s.Ready == 1 })
	const claim = `{sandboxTemplateRef: {name: tool}, warmpool: tools, env: [{name: WHO, value: "7"}], ttlSecondsAfterCreated: 600}`
	require.Contains(t, apply("SandboxClaim", "session-9", claim), "claim session-9 created")
	require.Contains(t, apply("SandboxClaim", "session-9", claim), "claim session-9 unchanged")
	st := untilPoolOf(t, c, "tool", "the claim is counted", func(s workspace.PoolState) bool { return s.Claims+s.Misses > 0 })
	require.Equal(t, []uint64{1, 0}, []uint64{st.Claims, st.Misses})
	all, err := c.Sandboxes(ctx(t, 30*time.Second), 0)
	require.NoError(t, err)
	for _, s := range all {
		if s.Claim == "session-9" {
			require.Equal(t, "calm 7\n", execute(t, c, s.ID, "", "/bin/sh", "-c", "echo $MOOD $WHO").out)
			_, err := c.KillSandbox(ctx(t, 30*time.Second), s.ID)
			require.NoError(t, err)
		}
	}
	w.must("pool", "delete", "tools")
}

// poolState is what the one node says of a pool.
func poolState(t testing.TB, c *client.Client, name string) workspace.PoolState {
	t.Helper()
	st, err := c.Pools().Get(ctx(t, 30*time.Second), name)
	require.NoError(t, err)
	if len(st.Nodes) == 0 {
		return workspace.PoolState{}
	}
	return st.Nodes[0]
}

func untilPool(t testing.TB, c *client.Client, what string, is func(workspace.PoolState) bool) workspace.PoolState {
	t.Helper()
	return untilPoolOf(t, c, "base", what, is)
}

func untilPoolOf(t testing.TB, c *client.Client, name, what string, is func(workspace.PoolState) bool) workspace.PoolState {
	t.Helper()
	var st workspace.PoolState
	for end := time.Now().Add(poolWait); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if st = poolState(t, c, name); is(st) {
			return st
		}
	}
	require.FailNow(t, what, "%+v %+v", st, st.Fault)
	return st
}

func sharedTemplate(t testing.TB, w *world, name string) workspace.Template {
	t.Helper()
	for _, x := range items[workspace.Template](t, w.must("template", "shared", "--json")) {
		if x.Name == name {
			return x
		}
	}
	require.FailNow(t, "no such template", name)
	return workspace.Template{}
}

// sandboxesLeft lists the control groups and supervisors' directories of sandboxes, whoever's they are.
func sandboxesLeft(t testing.TB, dir string) (out []string) {
	for _, l := range leftovers(t, dir) {
		if strings.HasPrefix(l, "cgroup ") || strings.Contains(l, "/sup/") {
			out = append(out, l)
		}
	}
	return out
}
