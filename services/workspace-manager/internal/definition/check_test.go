package definition_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
)

func agent(f func(*workspace.Agent)) *workspace.Agent {
	a := &workspace.Agent{Name: "a", Template: "base", Entrypoint: []string{"x"}}
	if f != nil {
		f(a)
	}
	return a
}

func trig(f func(*workspace.Trigger)) *workspace.Trigger {
	t := &workspace.Trigger{Name: "t", Message: &workspace.MessageTrigger{To: "a", From: []string{"b"}}, Start: workspace.Submission{Agent: "a"}}
	if f != nil {
		f(t)
	}
	return t
}

func TestAgent(t *testing.T) {
	use := func(u ...workspace.SecretUse) func(*workspace.Agent) {
		return func(a *workspace.Agent) { a.Secrets = u }
	}
	for name, c := range map[string]struct {
		f    func(*workspace.Agent)
		want string
	}{
		"whole":         {use(workspace.SecretUse{Name: "k", As: "env", Env: "K"}, workspace.SecretUse{Name: "k", As: "vault"}), ""},
		"name":          {func(a *workspace.Agent) { a.Name = "A" }, "agent"},
		"template":      {func(a *workspace.Agent) { a.Template = "" }, "template"},
		"entrypoint":    {func(a *workspace.Agent) { a.Entrypoint = nil }, "entrypoint"},
		"workdir":       {func(a *workspace.Agent) { a.Workdir = "/a/../b" }, "workdir"},
		"level":         {func(a *workspace.Agent) { a.Level = "none" }, "level"},
		"files":         {func(a *workspace.Agent) { a.Files = "shared" }, "files"},
		"memory":        {func(a *workspace.Agent) { a.Resources.MemoryBytes = 5 }, "memory_bytes"},
		"negative":      {func(a *workspace.Agent) { a.Resources.PIDs = -5 }, "pids"},
		"max_running":   {func(a *workspace.Agent) { a.MaxRunning = -5 }, "max_running"},
		"attempts":      {func(a *workspace.Agent) { a.MaxAttempts = 50 }, "max_attempts"},
		"secret as":     {use(workspace.SecretUse{Name: "k", As: "stdin"}), "file, env or vault"},
		"secret no env": {use(workspace.SecretUse{Name: "k", As: "env"}), "variable"},
		"secret env":    {use(workspace.SecretUse{Name: "k", As: "file", Env: "K"}), "only for"},
		"secret twice":  {use(workspace.SecretUse{Name: "k", As: "file"}, workspace.SecretUse{Name: "k", As: "file"}), "twice"},
		"secret path":   {use(workspace.SecretUse{Name: "../k", As: "file"}), "DNS label"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, definition.Agent(agent(c.f)), c.want) })
	}
}

func TestTrigger(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(*workspace.Trigger)
		want string
	}{
		"message": {nil, ""},
		"event": {func(t *workspace.Trigger) {
			t.Message, t.Event = nil, &workspace.EventTrigger{Events: []string{"complete"}, Agents: []string{"a"}}
		}, ""},
		"both":       {func(t *workspace.Trigger) { t.Event = &workspace.EventTrigger{} }, "exactly one"},
		"neither":    {func(t *workspace.Trigger) { t.Message = nil }, "exactly one"},
		"no sender":  {func(t *workspace.Trigger) { t.Message.From = nil }, "message.from"},
		"any sender": {func(t *workspace.Trigger) { t.Message.From = []string{"*"} }, "DNS label"},
		"no agents": {func(t *workspace.Trigger) {
			t.Message, t.Event = nil, &workspace.EventTrigger{Events: []string{"complete"}}
		}, "event.agents"},
		"bad event": {func(t *workspace.Trigger) {
			t.Message, t.Event = nil, &workspace.EventTrigger{Events: []string{"done"}, Agents: []string{"a"}}
		}, "none of"},
		"start": {func(t *workspace.Trigger) { t.Start = workspace.Submission{} }, "start"},
		"input": {func(t *workspace.Trigger) { t.Start.Input = []byte(`{}`) }, "start.input"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, definition.Trigger(trig(c.f)), c.want) })
	}
}

func TestTenantWorkspaceTemplate(t *testing.T) {
	expect(t, definition.Tenant(&workspace.Tenant{Name: "acme"}), "")
	expect(t, definition.Tenant(&workspace.Tenant{Name: "system"}), "reserved")
	expect(t, definition.Tenant(&workspace.Tenant{Name: "acme", Quota: workspace.Quota{MaxRunning: -1}}), "max_running")
	expect(t, definition.Workspace(&workspace.Workspace{Name: "-"}), "DNS label")
	expect(t, definition.Workspace(&workspace.Workspace{Name: "w", Labels: map[string]string{"": ""}}), "labels")
	expect(t, definition.Template(&workspace.Template{Name: "base", Image: "base"}), "")
	expect(t, definition.Template(&workspace.Template{Name: "base"}), "image")
	expect(t, definition.Template(&workspace.Template{Name: "base", Image: "a b"}), "image")
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
}
