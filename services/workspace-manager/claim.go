package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// Claim gives an attempt to the node that asks. Asked again by the same node for the same sandbox it
// gives the same answer. A conflict means that the attempt is no longer to be had: the node takes the
// message off the queue. Unavailable and exhausted mean that this node may not have it now: it puts it back.
func (s *Service) Claim(ctx context.Context, by mesh.Caller, req workspace.Claim) (workspace.ClaimReply, error) {
	var reply workspace.ClaimReply
	if err := checkNode(by); err != nil {
		return reply, err
	}
	if err := checkItem(req.QueueItem); err != nil {
		return reply, err
	}
	if err := schemas.CheckID("sandbox", req.Sandbox); err != nil {
		return reply, fault.New(fault.Invalid, "%v", err)
	}
	if err := s.nodes.mayClaim(by.Principal); err != nil {
		return reply, err
	}
	now := s.cfg.Now().UTC()
	k := itemKey(req.QueueItem)
	h := lifecycle.Holder{Attempt: req.Attempt, Node: by.Principal, Sandbox: req.Sandbox, NodeKey: req.NodeKey}
	r, err := s.stores.tasks.Update(ctx, k, func(t *workspace.Task) (string, error) {
		if t.Run != nil {
			if err := s.nodes.mayRun(by.Principal, t.Run.Level); err != nil {
				return "", err
			}
		}
		return lifecycle.Claim(t, h, now)
	})
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = fault.Wrap(err, fault.Conflict, "task %s is no longer there", req.Task)
		}
		return reply, err
	}
	failpoint.Hit(fpAfterClaimRecord)
	if v := s.tenants.view(ctx, req.Tenant); v != nil {
		v.task(r)
		reply.Agent, reply.Template = v.asAdmitted(ctx, &r.Value)
	}
	reply.Task, reply.Run = r.Value, *r.Value.Run
	reply.UserJWT, err = s.signers.mint(req.Tenant, req.Workspace, reply.Run.Principal, req.Sandbox, req.UserKey)
	if err != nil {
		// The node gives the attempt back with the reason; it is not left to time out.
		_, ferr := s.Finish(ctx, by, workspace.Finish{QueueItem: req.QueueItem, Retry: !fault.Is(err, fault.Invalid), Fault: publicFault(err)})
		if ferr != nil {
			s.log.Error("claim not undone; it will time out", "task", req.Task, "err", ferr)
		}
		return reply, err
	}
	reply.Deadline = now.Add(s.cfg.ClaimLease)
	failpoint.Hit(fpBeforeClaimReply)
	return reply, nil
}

// asAdmitted gives the agent in the version that the task was admitted with, and the template; what was
// deleted since is absent. What runs stands in the task's own record.
func (v *view) asAdmitted(ctx context.Context, t *workspace.Task) (*workspace.Agent, workspace.Template) {
	name := t.Submission.Template
	var agent *workspace.Agent
	if t.Submission.Agent != "" {
		agent = v.agentVersion(ctx, records.Key{Tenant: t.Tenant, Workspace: t.Workspace, ID: t.Submission.Agent}, t.AgentVersion)
		if agent != nil {
			name = agent.Template
		}
	}
	tpl, err := v.cachedTemplate(ctx, t.Workspace, name)
	if err != nil {
		return agent, workspace.Template{}
	}
	return agent, *tpl
}

func (v *view) agentVersion(ctx context.Context, k records.Key, version int) *workspace.Agent {
	if r, ok := v.agents.get(k); ok && r.Value.Version == version {
		return &r.Value
	}
	rs, err := v.s.stores.agents.History(ctx, k)
	if err != nil {
		return nil
	}
	for i := range rs {
		if rs[i].Value.Version == version && rs[i].Event != deleted {
			return &rs[i].Value
		}
	}
	return nil
}

// cachedTemplate is template from the views, else from the log.
func (v *view) cachedTemplate(ctx context.Context, ws, name string) (*workspace.Template, error) {
	for _, w := range []string{ws, schemas.NoWorkspace} {
		if r, ok := v.templates.get(records.Key{Tenant: v.tenant, Workspace: w, ID: name}); ok {
			return &r.Value, nil
		}
	}
	return v.template(ctx, ws, name)
}

// checkNode refuses callers of the int plane that are no nodes.
func checkNode(by mesh.Caller) error {
	if err := schemas.CheckName("node", by.Principal); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	if schemas.Reserved(by.Principal) {
		return fault.New(fault.Denied, "only nodes may do this, not %s", by.Principal)
	}
	return nil
}

func checkItem(i workspace.QueueItem) error {
	for _, err := range []error{schemas.CheckName("tenant", i.Tenant), schemas.CheckName("workspace", i.Workspace), schemas.CheckID("task", i.Task)} {
		if err != nil {
			return fault.New(fault.Invalid, "%v", err)
		}
	}
	if i.Attempt < 1 {
		return fault.New(fault.Invalid, "attempt %d must be 1 or more", i.Attempt)
	}
	return nil
}

func itemKey(i workspace.QueueItem) records.Key {
	return records.Key{Tenant: i.Tenant, Workspace: i.Workspace, ID: i.Task}
}

func publicFault(err error) *workspace.Fault {
	code, text := fault.Public(err)
	return &workspace.Fault{Code: string(code), Message: text}
}
