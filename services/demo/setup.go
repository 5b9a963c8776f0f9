package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// The show's names.
const (
	tenant    = "default"
	audited   = "audit"   // the workspace of the show
	other     = "default" // another one, which the audit's agents have no business in
	principal = "auditor"

	planner  = "planner"
	analyst  = "analyst"
	reviewer = "reviewer"
)

// agentTimeout bounds one attempt of an agent.
const agentTimeoutMS = 10 * 60 * 1000

// definitions are the agents. What secrets an agent wants stands here; that it may have them, in grants.
func definitions() []workspace.Agent {
	program := func(name string, uses ...workspace.SecretUse) workspace.Agent {
		return workspace.Agent{Name: name, Template: "python", Level: "standard", TimeoutMS: agentTimeoutMS, Secrets: uses,
			Entrypoint: []string{"python3", "-B", "/workspace/agents/" + name + ".py"}}
	}
	return []workspace.Agent{
		program(planner),
		program(analyst, workspace.SecretUse{Name: "fingerprint-key", As: secrets.AsFile}),
		program(reviewer, workspace.SecretUse{Name: reportKey, As: secrets.AsVault}, workspace.SecretUse{Name: "sample-seed", As: secrets.AsFile}),
	}
}

// review starts the reviewer when all analysts of a group have sent it a message.
func review() workspace.Trigger {
	return workspace.Trigger{Name: "review", Gather: true, Message: &workspace.MessageTrigger{To: reviewer, From: []string{analyst}},
		Start: workspace.Submission{Agent: reviewer}}
}

// grants say which agent may have which secret, and how.
func grants() []secrets.GrantRequest {
	return []secrets.GrantRequest{
		{Secret: "fingerprint-key", Agent: analyst, As: []string{secrets.AsFile}},
		{Secret: "sample-seed", Agent: reviewer, As: []string{secrets.AsFile}},
		{Secret: reportKey, Agent: reviewer, As: []string{secrets.AsVault}},
	}
}

// furnish makes the workspace with everything that the audit needs.
func (s *show) furnish(ctx context.Context) error {
	c, err := client.Dial(ctx, client.Context{DataDir: s.d.dataDir, Tenant: tenant, Workspace: audited, Principal: principal})
	if err != nil {
		return err
	}
	s.c = c
	if _, err := c.Workspaces().Put(ctx, workspace.Workspace{Name: audited, Labels: map[string]string{"made-by": "weft-demo"}}, 0); err != nil {
		return err
	}
	for _, a := range definitions() {
		if _, err := c.Agents().Put(ctx, a, 0); err != nil {
			return err
		}
	}
	if _, err := c.Triggers().Put(ctx, review(), 0); err != nil {
		return err
	}
	s.v.say("workspace %s: agents %s, %s and %s; trigger %s gathers the messages of all analysts", audited, planner, analyst, reviewer, review().Name)
	if err := s.secrets(ctx); err != nil {
		return err
	}
	rep, err := s.put(ctx, filesystem.PutRequest{Tar: true, Replace: true}, "src", true)
	if err != nil {
		return err
	}
	s.v.say("files: %d with the agents' programs, %.1f MiB, snapshot %s", rep.Files, float64(rep.Bytes)/(1<<20), rep.Snapshot)
	return nil
}

// secrets stores two values that nobody has seen, makes a key that never leaves Vault, and grants them.
func (s *show) secrets(ctx context.Context) error {
	for _, name := range []string{"fingerprint-key", "sample-seed"} {
		var b [32]byte
		_, _ = rand.Read(b[:])
		if _, err := s.c.PutSecret(ctx, secrets.PutRequest{Name: name, Kind: secrets.KindKV, Value: hex.EncodeToString(b[:])}); err != nil {
			return err
		}
	}
	if _, err := s.c.PutSecret(ctx, secrets.PutRequest{Name: reportKey, Kind: secrets.KindTransit}); err != nil {
		return err
	}
	for _, g := range grants() {
		if _, err := s.c.GrantSecret(ctx, g); err != nil {
			return err
		}
		s.v.say("secret %s: only %s may have it, as %s", g.Secret, g.Agent, g.As[0])
	}
	return nil
}

// put makes the copy of the code base part of the workspace's head, as one change.
func (s *show) put(ctx context.Context, req filesystem.PutRequest, prefix string, withAgents bool) (filesystem.PutReply, error) {
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		_ = w.CloseWithError(writeTar(w, s.src, prefix, s.inv.Files, withAgents))
	}()
	rep, err := s.c.PutFile(ctx, req, r)
	_ = r.CloseWithError(err)
	<-packed
	return rep, err
}
