package manager

import (
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Deadlines of operations: most are a few reads and one write.
const (
	quick = 10 * time.Second
	slow  = 75 * time.Second // making a sandbox, or ending one
)

// serve answers requests until stop.
func (s *Service) serve() (stop func(), err error) {
	req, err := s.conn.ServeReq(schemas.WorkspaceManager,
		mesh.Op(workspace.OpWorkspacePut, quick, s.WorkspacePut),
		mesh.Op(workspace.OpWorkspaceGet, quick, s.WorkspaceGet),
		mesh.Op(workspace.OpWorkspaceList, quick, s.WorkspaceList),
		mesh.Op(workspace.OpWorkspaceDelete, quick, s.WorkspaceDelete),
		mesh.Op(workspace.OpAgentPut, quick, s.AgentPut),
		mesh.Op(workspace.OpAgentGet, quick, s.AgentGet),
		mesh.Op(workspace.OpAgentList, quick, s.AgentList),
		mesh.Op(workspace.OpAgentDelete, quick, s.AgentDelete),
		mesh.Op(workspace.OpTemplatePut, quick, s.TemplatePut),
		mesh.Op(workspace.OpTemplateGet, quick, s.TemplateGet),
		mesh.Op(workspace.OpTemplateList, quick, s.TemplateList),
		mesh.Op(workspace.OpTemplateDelete, quick, s.TemplateDelete),
		mesh.Op(workspace.OpTriggerPut, quick, s.TriggerPut),
		mesh.Op(workspace.OpTriggerGet, quick, s.TriggerGet),
		mesh.Op(workspace.OpTriggerList, quick, s.TriggerList),
		mesh.Op(workspace.OpTriggerDelete, quick, s.TriggerDelete),
		mesh.Op(workspace.OpPoolPut, quick, s.PoolPut),
		mesh.Op(workspace.OpPoolGet, quick, s.PoolGet),
		mesh.Op(workspace.OpPoolList, quick, s.PoolList),
		mesh.Op(workspace.OpPoolDelete, quick, s.PoolDelete),
		mesh.Op(workspace.OpTaskGet, quick, s.TaskGet),
		mesh.Op(workspace.OpTaskList, quick, s.TaskList),
		mesh.Op(workspace.OpTaskCancel, quick, s.TaskCancel),
		mesh.Op(workspace.OpTaskRetry, quick, s.TaskRetry),
		mesh.Op(workspace.OpTaskHistory, quick, s.TaskHistory),
		mesh.Many(workspace.OpTaskOutput, s.TaskOutput),
		mesh.Many(workspace.OpEvents, s.Events),
		mesh.Op(workspace.OpMessages, maxMessageWait+quick, s.Messages),
		mesh.Op(workspace.OpSandboxCreate, slow, s.SandboxCreate),
		mesh.Op(workspace.OpSandboxGet, quick, s.SandboxGet),
		mesh.Op(workspace.OpSandboxList, quick, s.SandboxList),
		mesh.Op(workspace.OpSandboxKill, slow, s.SandboxKill),
		mesh.Op(workspace.OpSandboxExtend, 3*quick, s.SandboxExtend),
		mesh.Op(workspace.OpSandboxFork, slow, s.SandboxFork),
		mesh.Op(workspace.OpSandboxSnapshot, snapshotTimeout+quick, s.SandboxSnapshot),
		mesh.Op(workspace.OpSandboxPause, 3*quick, s.SandboxPause),
		mesh.Op(workspace.OpSandboxResume, 3*quick, s.SandboxResume),
		mesh.Op(workspace.OpNodeList, quick, s.NodeList),
		mesh.Op(workspace.OpMeshState, quick, s.MeshState),
	)
	if err != nil {
		return nil, err
	}
	internal, err := s.conn.ServeInt(schemas.WorkspaceManager,
		mesh.Op(workspace.OpClaim, quick, s.Claim),
		mesh.Op(workspace.OpRenew, quick, s.Renew),
		mesh.Op(workspace.OpProgress, quick, s.Progress),
		mesh.Op(workspace.OpFinish, quick, s.Finish),
		mesh.Op(workspace.OpHeartbeat, quick, s.Heartbeat),
		mesh.Op(workspace.OpNodeCleaned, quick, s.NodeCleaned),
		mesh.Op(workspace.OpAttempt, quick, s.Attempt),
		mesh.Op(workspace.OpSandboxEnded, quick, s.SandboxEnded),
		mesh.Op(workspace.OpSandboxWarned, quick, s.SandboxWarned),
		mesh.Op(workspace.OpTenantPut, 3*quick, s.TenantPut),
		mesh.Op(workspace.OpTenantList, quick, s.TenantList),
		mesh.Op(workspace.OpTenantDelete, quick, s.TenantDelete),
		mesh.Op(workspace.OpTemplatePut, quick, s.OperatorTemplatePut),
		mesh.Op(workspace.OpTemplateList, quick, s.OperatorTemplateList),
		mesh.Op(workspace.OpTemplateDelete, quick, s.OperatorTemplateDelete),
		mesh.Op(workspace.OpPoolPut, quick, s.OperatorPoolPut),
		mesh.Op(workspace.OpPoolGet, quick, s.OperatorPoolGet),
		mesh.Op(workspace.OpPoolList, quick, s.OperatorPoolList),
		mesh.Op(workspace.OpPoolDelete, quick, s.OperatorPoolDelete),
		mesh.Op(workspace.OpNodeList, quick, s.NodeList),
		mesh.Op(workspace.OpNodeDrain, quick, s.NodeDrain),
		mesh.Op(workspace.OpDLQList, quick, s.DLQList),
		mesh.Op(workspace.OpDLQRedrive, quick, s.DLQRedrive),
		mesh.Op(workspace.OpDLQDrop, quick, s.DLQDrop),
	)
	if err != nil {
		req.Stop()
		return nil, err
	}
	return func() { req.Stop(); internal.Stop() }, nil
}
