package e2e

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// publishRaw submits a body as it is and gives the task's id.
func publishRaw(t testing.TB, c *mesh.Conn, ws, body string) string {
	t.Helper()
	key := "raw-" + schemas.NewID()
	subject, err := schemas.Submit("default", ws, c.Name())
	require.NoError(t, err)
	_, err = c.PublishMsg(ctx(t, 10*time.Second), &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{schemas.HeaderID: {key}}})
	require.NoError(t, err)
	return schemas.TaskID("default", ws, key)
}

// TestHostilePayload: what code in a sandbox tries against its node. After each the node takes the next task.
func TestHostilePayload(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	for _, h := range []struct {
		name, script string
		limits       workspace.Resources
		check        func(t *testing.T, task workspace.Task)
	}{
		{"fork bomb", `bomb() { bomb | bomb & }; bomb; sleep 2; echo survived`, workspace.Resources{}, nil},
		{"memory", `head -c 2000000000 /dev/zero | tail`, workspace.Resources{}, func(t *testing.T, task workspace.Task) {
			require.Equal(t, workspace.Error, task.State)
			require.Equal(t, "oom", task.Attempt.Outcome.Exit.Reason, "%+v", task.Attempt.Outcome.Exit)
		}},
		{"disk", `head -c 3000000000 /dev/zero > /workspace/big; echo "code $?"; rm -f /workspace/big`, workspace.Resources{}, func(t *testing.T, task workspace.Task) {
			require.Contains(t, output(t, c, task.ID, "stderr"), "No space left")
		}},
		{"1 GiB of output", `head -c 1073741824 /dev/zero`, workspace.Resources{}, func(t *testing.T, task workspace.Task) {
			require.Equal(t, workspace.Complete, task.State)
			require.True(t, task.Attempt.Outcome.Usage.Truncated, "the cap is said")
		}},
		{"ignores SIGTERM", `trap '' TERM; while :; do sleep 1; done`, workspace.Resources{}, func(t *testing.T, task workspace.Task) {
			require.Equal(t, "timeout", task.Attempt.Outcome.Exit.Reason)
		}},
		{"looks around", `cat /etc/shadow /proc/1/environ /proc/1/root/etc/hostname 2>&1; cat /proc/net/dev; mount -t tmpfs x /mnt 2>&1; cat /proc/self/status | grep -E 'CapEff|NoNewPrivs|Seccomp:'`, workspace.Resources{}, func(t *testing.T, task workspace.Task) {
			out := output(t, c, task.ID, "stdout")
			require.NotContains(t, out, "root:$")
			require.Contains(t, out, "CapEff:\t0000000000000000")
			require.Contains(t, out, "NoNewPrivs:\t1")
			require.Contains(t, out, "Seccomp:\t2")
			require.NotContains(t, out, "eth0")
		}},
	} {
		t.Run(h.name, func(t *testing.T) {
			s := shell(h.script)
			s.TimeoutMS = 15_000
			switch h.name {
			case "ignores SIGTERM":
				s.TimeoutMS = 500
			case "1 GiB of output":
				s.TimeoutMS = 120_000 // on a machine that has much else to do
			case "fork bomb":
				s.TimeoutMS = 4_000
			}
			task := finish(t, c, s)
			require.True(t, task.State.Final())
			if h.check != nil {
				h.check(t, task)
			}
			require.Equal(t, workspace.Complete, finish(t, c, shell("true")).State, "the node goes on")
		})
	}
}
