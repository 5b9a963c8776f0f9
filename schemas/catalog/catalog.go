// Package catalog lists the contract as data: every operation and message with its subject, its types,
// who sends and who receives it, and the stream that keeps it. The JSON Schemas and CATALOG.md are
// generated from it, and a test compares it with what the services really serve.
package catalog

import (
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Replies says how an operation answers.
type Replies string

// One answer, many, or a byte stream (pkg/mesh/stream).
const (
	One    Replies = "one"
	Many   Replies = "many"
	Stream Replies = "stream"
)

// Operation is a request that somebody serves.
type Operation struct {
	Plane    schemas.Plane
	Service  string // who serves it; on sbx and node the runtime
	Name     string
	Request  any // a zero value of its type
	Reply    any
	Replies  Replies
	Callers  []string // roles that may ask: user, agent, node, operator, or a service
	Sentence string
}

// Message is what is published and kept.
type Message struct {
	Plane    schemas.Plane
	Subject  string // with names in angle brackets
	Type     string // ce-type, empty where there is none
	Body     any
	Stream   string
	Sender   string
	Receiver string
	Sentence string
}

const (
	user  = "user"
	agent = "agent"
	node  = "node"
)

var (
	users  = []string{user}
	people = []string{user, agent}
	nodes  = []string{node}
)

func req(service, name string, request, reply any, callers []string, sentence string) Operation {
	return Operation{schemas.PlaneReq, service, name, request, reply, One, callers, sentence}
}

func internal(service, name string, request, reply any, callers []string, sentence string) Operation {
	return Operation{schemas.PlaneInt, service, name, request, reply, One, callers, sentence}
}

func (o Operation) replies(r Replies) Operation { o.Replies = r; return o }

// Operations gives every operation, service by service.
func Operations() []Operation {
	var out []Operation
	out = append(out, managerOperations()...)
	out = append(out, filesystemOperations()...)
	out = append(out, secretsOperations()...)
	out = append(out, memoryOperations()...)
	return append(out, runtimeOperations()...)
}

func managerOperations() []Operation {
	const s = schemas.WorkspaceManager
	type (
		ws  = workspace.Workspace
		ag  = workspace.Agent
		tm  = workspace.Template
		tr  = workspace.Trigger
		po  = workspace.Pool
		ps  = workspace.PoolStatus
		t   = workspace.Task
		nam = workspace.Name
		id  = workspace.ID
		lst = workspace.List
		no  = workspace.Empty
	)
	op := []string{schemas.Operator}
	return []Operation{
		req(s, workspace.OpWorkspacePut, workspace.Put[ws]{}, ws{}, users, "creates or changes a workspace"),
		req(s, workspace.OpWorkspaceGet, nam{}, ws{}, users, "one workspace"),
		req(s, workspace.OpWorkspaceList, lst{}, workspace.Page[ws]{}, users, "the tenant's workspaces"),
		req(s, workspace.OpWorkspaceDelete, nam{}, ws{}, users, "ends its tasks and removes everything of it"),
		req(s, workspace.OpAgentPut, workspace.Put[ag]{}, ag{}, users, "a new version of an agent"),
		req(s, workspace.OpAgentGet, nam{}, ag{}, people, "one agent"),
		req(s, workspace.OpAgentList, lst{}, workspace.Page[ag]{}, people, "the workspace's agents"),
		req(s, workspace.OpAgentDelete, nam{}, no{}, users, "removes an agent; tasks keep their version"),
		req(s, workspace.OpTemplatePut, workspace.Put[tm]{}, tm{}, users, "a new version of a template"),
		req(s, workspace.OpTemplateGet, nam{}, tm{}, users, "one template"),
		req(s, workspace.OpTemplateList, lst{}, workspace.Page[tm]{}, users, "the templates"),
		req(s, workspace.OpTemplateDelete, nam{}, no{}, users, "removes a template"),
		req(s, workspace.OpTriggerPut, workspace.Put[tr]{}, tr{}, users, "a new version of a trigger"),
		req(s, workspace.OpTriggerGet, nam{}, tr{}, users, "one trigger"),
		req(s, workspace.OpTriggerList, lst{}, workspace.Page[tr]{}, users, "the triggers"),
		req(s, workspace.OpTriggerDelete, nam{}, no{}, users, "removes a trigger"),
		req(s, workspace.OpPoolPut, workspace.Put[po]{}, po{}, users, "a new version of a template's warm pool"),
		req(s, workspace.OpPoolGet, nam{}, ps{}, users, "one warm pool, as it stands on each node"),
		req(s, workspace.OpPoolList, lst{}, workspace.Page[ps]{}, users, "the warm pools"),
		req(s, workspace.OpPoolDelete, nam{}, no{}, users, "removes a warm pool; its unused members go"),
		req(s, workspace.OpTaskGet, id{}, t{}, people, "one task, from the log's leader"),
		req(s, workspace.OpTaskList, workspace.TaskList{}, workspace.Page[t]{}, people, "tasks, newest first"),
		req(s, workspace.OpTaskCancel, id{}, t{}, people, "asks for a task's end"),
		req(s, workspace.OpTaskRetry, id{}, t{}, users, "submits a finished task again"),
		req(s, workspace.OpTaskHistory, id{}, workspace.Page[workspace.Change[t]]{}, people, "every change of a task"),
		req(s, workspace.OpTaskOutput, workspace.OutputRequest{}, workspace.OutputChunk{}, people, "output from an offset, then live").replies(Many),
		req(s, workspace.OpEvents, workspace.EventsRequest{}, workspace.Change[any]{}, people, "the log from a time or sequence, then live").replies(Many),
		req(s, workspace.OpMessages, workspace.MessagesRequest{}, workspace.Page[workspace.Message]{}, people, "messages to the caller or a channel"),
		req(s, workspace.OpSandboxCreate, workspace.SandboxCreate{}, workspace.Sandbox{}, users, "an interactive sandbox"),
		req(s, workspace.OpSandboxGet, id{}, workspace.Sandbox{}, users, "one sandbox"),
		req(s, workspace.OpSandboxList, lst{}, workspace.Page[workspace.Sandbox]{}, users, "the interactive sandboxes"),
		req(s, workspace.OpSandboxKill, id{}, workspace.Sandbox{}, users, "ends a sandbox"),
		req(s, workspace.OpSandboxExtend, workspace.SandboxExtend{}, workspace.Sandbox{}, users, "keeps a sandbox alive"),
		req(s, workspace.OpSandboxFork, workspace.SandboxFork{}, workspace.Page[workspace.Sandbox]{}, users, "sandboxes with the files of one"),
		req(s, workspace.OpSandboxSnapshot, workspace.SandboxSnapshot{}, tm{}, users, "a template of what a sandbox has changed of its root"),
		req(s, workspace.OpSandboxPause, id{}, workspace.Sandbox{}, users, "freezes a sandbox where it is"),
		req(s, workspace.OpSandboxResume, id{}, workspace.Sandbox{}, users, "lets a paused sandbox go on"),
		req(s, workspace.OpNodeList, lst{}, workspace.Page[workspace.NodeRecord]{}, users, "the nodes"),
		req(s, workspace.OpMeshState, no{}, workspace.MeshState{}, users, "whether what is published is stored now"),
		internal(s, workspace.OpTenantPut, workspace.TenantPut{}, workspace.Tenant{}, op, "creates or changes a tenant"),
		internal(s, workspace.OpTenantList, lst{}, workspace.Page[workspace.Tenant]{}, op, "the tenants"),
		internal(s, workspace.OpTenantDelete, nam{}, no{}, op, "removes everything of a tenant"),
		internal(s, workspace.OpTemplatePut, workspace.Put[tm]{}, tm{}, op, "a new version of a template that every tenant can use"),
		internal(s, workspace.OpTemplateList, lst{}, workspace.Page[tm]{}, op, "the templates that every tenant can use"),
		internal(s, workspace.OpTemplateDelete, nam{}, no{}, op, "removes a template that every tenant could use"),
		internal(s, workspace.OpPoolPut, workspace.Put[po]{}, po{}, op, "a new version of a warm pool that serves every tenant"),
		internal(s, workspace.OpPoolGet, nam{}, ps{}, op, "one warm pool that serves every tenant"),
		internal(s, workspace.OpPoolList, lst{}, workspace.Page[ps]{}, op, "the warm pools that serve every tenant"),
		internal(s, workspace.OpPoolDelete, nam{}, no{}, op, "removes a warm pool that serves every tenant"),
		internal(s, workspace.OpDLQList, workspace.DLQList{}, workspace.Page[workspace.DeadLetter]{}, op, "the dead letters"),
		internal(s, workspace.OpDLQRedrive, workspace.DLQRef{}, workspace.DLQDone{}, op, "sends dead letters to where they were going"),
		internal(s, workspace.OpDLQDrop, workspace.DLQRef{}, workspace.DLQDone{}, op, "forgets dead letters"),
		internal(s, workspace.OpNodeList, lst{}, workspace.Page[workspace.NodeRecord]{}, op, "the nodes"),
		internal(s, workspace.OpNodeDrain, workspace.NodeDrain{}, workspace.NodeRecord{}, op, "gives a node nothing new, or work again"),
		internal(s, workspace.OpClaim, workspace.Claim{}, workspace.ClaimReply{}, nodes, "a node takes an attempt"),
		internal(s, workspace.OpRenew, workspace.Renew{}, workspace.Renewed{}, nodes, "a node keeps its attempts"),
		internal(s, workspace.OpProgress, workspace.Progress{}, no{}, nodes, "milestones of an attempt"),
		internal(s, workspace.OpFinish, workspace.Finish{}, t{}, nodes, "the end of an attempt"),
		internal(s, workspace.OpNodeCleaned, workspace.Cleaned{}, no{}, nodes, "a node removed what belonged to no record"),
		internal(s, workspace.OpHeartbeat, workspace.Heartbeat{}, workspace.HeartbeatReply{}, nodes, "a node lives, and has room"),
		internal(s, workspace.OpAttempt, workspace.AttemptRequest{}, workspace.AttemptReply{}, []string{schemas.Filesystem, schemas.Secrets, schemas.Memory}, "who holds a task, for fencing"),
		internal(s, workspace.OpSandboxEnded, runtime.SandboxEnded{}, no{}, nodes, "how an interactive sandbox ended"),
		internal(s, workspace.OpSandboxWarned, runtime.SandboxWarned{}, no{}, nodes, "an interactive sandbox is about to be stopped, or no longer is"),
	}
}

func filesystemOperations() []Operation {
	const s = schemas.Filesystem
	mgr := []string{schemas.WorkspaceManager}
	return []Operation{
		req(s, filesystem.OpList, filesystem.ListRequest{}, filesystem.ListReply{}, people, "files of the head or a snapshot"),
		req(s, filesystem.OpStat, filesystem.GetRequest{}, filesystem.Entry{}, people, "one file"),
		req(s, filesystem.OpGet, filesystem.GetRequest{}, filesystem.Entry{}, people, "a file's bytes, or a tree as tar").replies(Stream),
		req(s, filesystem.OpPut, filesystem.PutRequest{}, filesystem.PutReply{}, users, "a file, or a tree as tar, into the head").replies(Stream),
		req(s, filesystem.OpRemove, filesystem.RemoveRequest{}, filesystem.PutReply{}, users, "removes from the head"),
		req(s, filesystem.OpSnapshot, filesystem.SnapshotRequest{}, filesystem.Snapshot{}, users, "names the present head"),
		req(s, filesystem.OpSnapshotList, filesystem.SnapshotListRequest{}, filesystem.SnapshotListReply{}, people, "the snapshots"),
		req(s, filesystem.OpSnapshotDiff, filesystem.DiffRequest{}, filesystem.DiffReply{}, people, "what two snapshots differ in"),
		req(s, filesystem.OpSnapshotRestore, filesystem.RestoreRequest{}, filesystem.Head{}, users, "makes a snapshot the head again"),
		req(s, filesystem.OpArtifactList, filesystem.SnapshotListRequest{}, workspace.Page[filesystem.Artifact]{}, users, "what tasks left"),
		req(s, filesystem.OpArtifactGet, workspace.ID{}, filesystem.Artifact{}, users, "an artifact's zip").replies(Stream),
		internal(s, filesystem.OpPrepare, filesystem.Prepare{}, filesystem.Prepared{}, nodes, "a private overlay for an attempt"),
		internal(s, filesystem.OpMerge, filesystem.Merge{}, filesystem.Merged{}, nodes, "an attempt's changes into the head"),
		internal(s, filesystem.OpDiscard, filesystem.Discard{}, workspace.Empty{}, nodes, "throws an overlay away"),
		internal(s, filesystem.OpHeld, filesystem.Held{}, workspace.Empty{}, nodes, "which sandboxes a node still has"),
		internal(s, filesystem.OpDeleteWorkspace, filesystem.DeleteWorkspace{}, workspace.Empty{}, mgr, "removes everything of a workspace"),
	}
}

func secretsOperations() []Operation {
	const s = schemas.Secrets
	return []Operation{
		req(s, secrets.OpPut, secrets.PutRequest{}, secrets.Secret{}, users, "stores a secret or makes a key"),
		req(s, secrets.OpList, workspace.List{}, workspace.Page[secrets.Secret]{}, users, "the secrets, without values"),
		req(s, secrets.OpDelete, workspace.Name{}, workspace.Empty{}, users, "deletes a secret and its grants"),
		req(s, secrets.OpGrant, secrets.GrantRequest{}, secrets.Grant{}, users, "lets an agent have a secret"),
		req(s, secrets.OpGrantList, workspace.List{}, workspace.Page[secrets.Grant]{}, users, "the grants"),
		req(s, secrets.OpGrantRevoke, workspace.ID{}, secrets.RevokeReply{}, users, "takes a grant back and its leases with it"),
		req(s, secrets.OpLeaseList, workspace.List{}, workspace.Page[secrets.Lease]{}, users, "what sandboxes were given"),
		req(s, secrets.OpLeaseRevoke, workspace.ID{}, secrets.RevokeReply{}, users, "ends a sandbox's leases"),
		req(s, secrets.OpVerify, secrets.VerifyRequest{}, secrets.VerifyReply{}, users, "checks a signature"),
		internal(s, secrets.OpIssue, secrets.IssueRequest{}, secrets.IssueReply{}, nodes, "a sandbox's credentials, sealed to its node"),
		internal(s, secrets.OpRenew, secrets.RenewRequest{}, secrets.RenewReply{}, nodes, "keeps leases"),
		internal(s, secrets.OpRevoke, secrets.RevokeRequest{}, secrets.RevokeReply{}, nodes, "ends a sandbox's leases"),
		internal(s, secrets.OpDeleteWorkspace, secrets.DeleteWorkspace{}, workspace.Empty{}, []string{schemas.WorkspaceManager}, "removes everything of a workspace"),
	}
}

func memoryOperations() []Operation {
	const s = schemas.Memory
	mgr := []string{schemas.WorkspaceManager}
	return []Operation{
		req(s, memory.OpAdd, memory.AddRequest{}, memory.AddReply{}, people, "remembers an item"),
		req(s, memory.OpSupersede, memory.SupersedeRequest{}, memory.SupersedeReply{}, people, "a fact's new version; the old one stays"),
		req(s, memory.OpGet, memory.GetRequest{}, memory.GetReply{}, people, "one item"),
		req(s, memory.OpSearch, memory.SearchRequest{}, memory.SearchReply{}, people, "full text, ranked"),
		req(s, memory.OpList, memory.ListRequest{}, memory.ListReply{}, people, "items by filter"),
		req(s, memory.OpForget, memory.ForgetRequest{}, memory.ForgetReply{}, people, "deletes items for good"),
		req(s, memory.OpHistory, memory.HistoryRequest{}, memory.HistoryReply{}, people, "a fact's versions"),
		req(s, memory.OpContext, memory.ContextRequest{}, memory.ContextReply{}, people, "what a task should know, within a budget"),
		internal(s, memory.OpDeleteWorkspace, memory.DeleteWorkspaceRequest{}, memory.DeleteReply{}, mgr, "removes everything of a workspace"),
		internal(s, memory.OpDeleteTenant, memory.DeleteTenantRequest{}, memory.DeleteReply{}, mgr, "removes everything of a tenant"),
	}
}

func runtimeOperations() []Operation {
	sbx := func(name string, request, reply any, r Replies, sentence string) Operation {
		return Operation{schemas.PlaneSbx, schemas.Runtime, name, request, reply, r, users, sentence}
	}
	nod := func(name string, request, reply any, r Replies, sentence string) Operation {
		return Operation{schemas.PlaneNode, schemas.Runtime, name, request, reply, r, []string{schemas.WorkspaceManager}, sentence}
	}
	return []Operation{
		nod(runtime.OpSandboxCreate, runtime.SandboxCreate{}, workspace.Empty{}, One, "makes an interactive sandbox"),
		nod(runtime.OpSandboxKill, runtime.SandboxKill{}, workspace.Empty{}, One, "ends a sandbox"),
		nod(runtime.OpSandboxFork, runtime.SandboxFork{}, workspace.Empty{}, One, "makes sandboxes with the files of another"),
		nod(runtime.OpSandboxSnapshot, runtime.SandboxSnapshot{}, runtime.Snapshot{}, One, "an image of a sandbox's root"),
		nod(runtime.OpSnapshotRemove, runtime.SnapshotRef{}, workspace.Empty{}, One, "removes such an image"),
		nod(runtime.OpSandboxExtend, runtime.SandboxExtend{}, workspace.Empty{}, One, "moves a sandbox's end"),
		nod(runtime.OpSandboxPause, runtime.SandboxRef{}, workspace.Empty{}, One, "freezes a sandbox"),
		nod(runtime.OpSandboxResume, runtime.SandboxRef{}, workspace.Empty{}, One, "thaws it"),
		nod(runtime.OpOutput, workspace.OutputRequest{}, workspace.OutputChunk{}, Many, "an attempt's spooled output"),
		nod(runtime.OpDrain, runtime.Drain{}, workspace.Empty{}, One, "take nothing new"),
		sbx(runtime.OpExec, runtime.ExecRequest{}, runtime.ExecResult{}, Stream, "runs a process"),
		sbx(runtime.OpProcessStart, runtime.ProcessStart{}, runtime.Process{}, One, "starts a process in the background"),
		sbx(runtime.OpProcessList, runtime.ProcessList{}, runtime.Processes{}, One, "the processes"),
		sbx(runtime.OpProcessGet, runtime.ProcessRef{}, runtime.Process{}, One, "one process"),
		sbx(runtime.OpProcessWait, runtime.ProcessWait{}, runtime.Process{}, One, "waits for a process's end"),
		sbx(runtime.OpProcessSignal, runtime.SignalRequest{}, workspace.Empty{}, One, "signals a process, its group or its tree"),
		sbx(runtime.OpProcessResize, runtime.ResizeRequest{}, workspace.Empty{}, One, "resizes a terminal"),
		sbx(runtime.OpProcessStop, runtime.ProcessStop{}, runtime.Process{}, One, "ends a process and its descendants"),
		sbx(runtime.OpProcessForget, runtime.ProcessRef{}, workspace.Empty{}, One, "removes an ended process and its output"),
		sbx(runtime.OpAttach, runtime.AttachRequest{}, runtime.Process{}, Stream, "follows a process's output, from any offset"),
		sbx(runtime.OpDial, runtime.DialRequest{}, runtime.DialResult{}, Stream, "connects to a port or unix socket inside"),
		sbx(runtime.OpSignal, runtime.SignalRequest{}, workspace.Empty{}, One, "signals a process (process-signal's first name)"),
		sbx(runtime.OpResize, runtime.ResizeRequest{}, workspace.Empty{}, One, "resizes a terminal (process-resize's first name)"),
		sbx(runtime.OpRead, runtime.FileRequest{}, runtime.FileInfo{}, Stream, "reads a file from inside"),
		sbx(runtime.OpWrite, runtime.FileRequest{}, runtime.FileInfo{}, Stream, "replaces a file from inside"),
		sbx(runtime.OpFileStat, runtime.FileStat{}, runtime.FileEntry{}, One, "describes a file"),
		sbx(runtime.OpFileList, runtime.FileList{}, runtime.FileListReply{}, One, "a page of a directory or tree"),
		sbx(runtime.OpFileRead, runtime.FileRead{}, runtime.FileEntry{}, Stream, "a part of a file"),
		sbx(runtime.OpFileWrite, runtime.FileWrite{}, runtime.FileEntry{}, Stream, "replaces a file, whole or not at all"),
		sbx(runtime.OpFileAppend, runtime.FileWrite{}, runtime.FileEntry{}, Stream, "adds to a file"),
		sbx(runtime.OpFileMkdir, runtime.FileMkdir{}, workspace.Empty{}, One, "makes a directory"),
		sbx(runtime.OpFileMove, runtime.FileMove{}, runtime.FileCount{}, Stream, "moves a file or tree"),
		sbx(runtime.OpFileCopy, runtime.FileMove{}, runtime.FileCount{}, Stream, "copies a file or tree"),
		sbx(runtime.OpFileRemove, runtime.FileRemove{}, runtime.FileCount{}, Stream, "removes a file or tree"),
		sbx(runtime.OpFileChmod, runtime.FileChmod{}, runtime.FileCount{}, Stream, "sets permission bits"),
		sbx(runtime.OpFileTouch, runtime.FileTouch{}, runtime.FileEntry{}, One, "makes a file, or sets its time"),
		sbx(runtime.OpFileGlob, runtime.FileGlob{}, runtime.FileCount{}, Stream, "paths that match: runtime.FileEntry by line"),
		sbx(runtime.OpFileSearch, runtime.FileSearch{}, runtime.FileCount{}, Stream, "lines that match: runtime.FileMatch by line"),
		sbx(runtime.OpFileReplace, runtime.FileReplace{}, runtime.FileCount{}, Stream, "replaces in files: runtime.FileReplaced by line"),
		sbx(runtime.OpFileWatch, runtime.FileWatch{}, runtime.FileCount{}, Stream, "what happens in a directory: runtime.FileChange by line"),
		sbx(runtime.OpFileTarOut, runtime.FilePath{}, runtime.FileCount{}, Stream, "a tree as tar"),
		sbx(runtime.OpFileTarIn, runtime.FilePath{}, runtime.FileCount{}, Stream, "unpacks a tar"),
		sbx(runtime.OpInspect, workspace.Empty{}, runtime.Inspect{}, One, "what it is and does"),
	}
}

// Messages gives everything that is published and kept.
func Messages() []Message {
	const mgr = schemas.WorkspaceManager
	record := func(entity, owner string, body any, sentence string) Message {
		return Message{schemas.PlaneEvt, "weft.v1.evt.<tenant>.<workspace>." + entity + ".<id>", "dev.weft." + entity + ".<event>.v1",
			body, "LOG-<tenant>", owner, "anybody of the tenant; services", sentence}
	}
	return []Message{
		{schemas.PlaneTask, "weft.v1.task.<tenant>.<workspace>.<principal>.submit", "", workspace.Submission{}, "TASKS-<tenant>", "user, agent", mgr, "a submission; its acknowledgement means accepted and never lost"},
		{schemas.PlaneMsg, "weft.v1.msg.<tenant>.<workspace>.<to>.<from>", "", nil, "MSG-<tenant>", "user, agent", "principals, triggers", "a message; any body"},
		{schemas.PlaneOut, "weft.v1.out.<tenant>.<workspace>.<task>.<attempt>", "", nil, "OUT-<tenant>", node, "user, agent", "live output, headers Weft-Stream and Weft-Offset"},
		{schemas.PlaneQueue, "weft.v1.queue.<placement>.<priority>", "", workspace.QueueItem{}, "QUEUE", mgr, node, "an attempt that waits"},
		{schemas.PlaneDLQ, "weft.v1.dlq.<tenant>.<consumer>", "", nil, "DLQ", mgr, schemas.Operator, "what could not be decoded or delivered, as it came"},
		record("tenant", mgr, workspace.Tenant{}, "a tenant"),
		record("workspace", mgr, workspace.Workspace{}, "a workspace"),
		record("agent", mgr, workspace.Agent{}, "an agent's definition"),
		record("template", mgr, workspace.Template{}, "a template"),
		record("pool", mgr, workspace.Pool{}, "a warm pool"),
		record("trigger", mgr, workspace.Trigger{}, "a trigger"),
		record("claim", mgr, workspace.HeldClaim{}, "which sandbox a claim's name has"),
		record("task", mgr, workspace.Task{}, "a task"),
		record("sandbox", mgr, workspace.Sandbox{}, "an interactive sandbox"),
		record("node", mgr, workspace.NodeRecord{}, "a node, of tenant system"),
		record("head", schemas.Filesystem, filesystem.Head{}, "a workspace's present files"),
		record("snapshot", schemas.Filesystem, filesystem.Snapshot{}, "an immutable version"),
		record("overlay", schemas.Filesystem, filesystem.Overlay{}, "an attempt's private view, and its fence"),
		record("artifact", schemas.Filesystem, filesystem.Artifact{}, "what a task left"),
		record("grant", schemas.Secrets, secrets.Grant{}, "who may have a secret"),
		record("lease", schemas.Secrets, secrets.Lease{}, "what a sandbox was given"),
	}
}
