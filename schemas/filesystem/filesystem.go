// Package filesystem holds the wire structs of the filesystem service: a workspace's head, private
// overlays, snapshots, merges and artifacts. Paths are relative, slash-separated, clean, valid UTF-8
// without NUL, at most 4096 bytes, each component at most 255. Sizes are bytes.
package filesystem

import "time"

// OwnerID is the owner, user and group, on disk of all that workspaces hold: user 1000 of the range that systemd sets aside
// for files of containers at rest (0x7FFE0000), which no account of a machine has. A node shows it as its sandbox's payload.
const OwnerID = 0x7FFE0000 + 1000

// Operations for principals, on the req plane. Put and Get carry their bytes on a byte stream
// (pkg/mesh/stream): the request opens it.
const (
	OpList            = "list"
	OpStat            = "stat"
	OpGet             = "get"
	OpPut             = "put"
	OpRemove          = "remove"
	OpSnapshot        = "snapshot"
	OpSnapshotList    = "snapshot-list"
	OpSnapshotDiff    = "snapshot-diff"
	OpSnapshotRestore = "snapshot-restore"
	OpArtifactList    = "artifact-list"
	OpArtifactGet     = "artifact-get"
)

// Operations for nodes and services, on the int plane.
const (
	OpPrepare         = "prepare"
	OpMerge           = "merge"
	OpDiscard         = "discard"
	OpHeld            = "held"
	OpDeleteWorkspace = "delete-workspace"
)

// Entry is one file of a snapshot or of the head.
type Entry struct {
	Path   string    `json:"path"`
	Type   string    `json:"type"` // file, dir, symlink
	Mode   uint32    `json:"mode"` // permission bits
	Size   int64     `json:"size"`
	MTime  time.Time `json:"mtime"`
	Target string    `json:"target,omitempty"` // of a symlink, as stored; never followed by the service
	Hash   string    `json:"hash,omitempty"`   // SHA-256 of the content, hex
}

// Head is the record of a workspace's present files, entity "head", id "head". Events: put, removed,
// merged, restored. The manifest itself is a chunk; the record names it.
type Head struct {
	Workspace  string    `json:"workspace"`
	Snapshot   string    `json:"snapshot"` // id of the snapshot that is the head
	Manifest   string    `json:"manifest"` // hash of the manifest
	Generation int64     `json:"generation"`
	Files      int       `json:"files"`
	Bytes      int64     `json:"bytes"`
	Task       string    `json:"task,omitempty"` // whose merge made it
	Attempt    int       `json:"attempt,omitempty"`
	UpdatedAt  time.Time `json:"updated_at"`
	// What follows belongs to the snapshot that is the head, so that its record can be written after this one.
	Parent       string   `json:"parent,omitempty"`
	Message      string   `json:"message,omitempty"`
	Principal    string   `json:"principal,omitempty"`
	FilesChanged int      `json:"files_changed,omitempty"`
	Conflicts    []string `json:"conflicts,omitempty"` // the first 1,000 paths of a merge that kept both versions
}

// Snapshot is the record of an immutable version, entity "snapshot".
type Snapshot struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Manifest  string    `json:"manifest"`
	Parent    string    `json:"parent,omitempty"`
	Message   string    `json:"message,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Task      string    `json:"task,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	CreatedAt time.Time `json:"created_at"`
	// Named says that somebody asked for it to be kept; others go when they are old.
	Named        bool     `json:"named,omitempty"`
	FilesChanged int      `json:"files_changed,omitempty"` // by the merge that made it
	Conflicts    []string `json:"conflicts,omitempty"`
}

// Overlay is the record of a task's private view, entity "overlay", id the task's (or the sandbox's). It is the fence: a
// later attempt's prepare raises Attempt, and a merge of a lower one is refused.
type Overlay struct {
	Owner    string    `json:"owner"` // task or sandbox id
	Attempt  int       `json:"attempt"`
	Sandbox  string    `json:"sandbox"`
	Base     string    `json:"base"`  // snapshot it started from
	State    string    `json:"state"` // open, merged, discarded
	Snapshot string    `json:"snapshot,omitempty"`
	At       time.Time `json:"at"`
	Merged   *Merged   `json:"merged,omitempty"` // what a merge answered; a repeat gets the same
}

// Prepare asks for a private overlay over the head, for one attempt or one interactive sandbox. Asked
// again for the same attempt and sandbox it gives the same.
type Prepare struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Owner     string `json:"owner"` // task id, or sandbox id
	Attempt   int    `json:"attempt"`
	Sandbox   string `json:"sandbox"`
	Mode      string `json:"mode"`       // private, readonly
	DiskBytes int64  `json:"disk_bytes"` // what the sandbox may write, a hard limit; 1 GiB if 0
	// IDBase is the host's id that is id 0 in the sandbox. If it is given the service mounts the overlay for these ids and
	// Path is ready to be bound as it is; if it is 0 Layers names the parts and the node mounts them.
	IDBase uint32 `json:"id_base,omitempty"`
	// From is another sandbox of the workspace on the same node: the overlay begins with the base and the changes that
	// that one's has now, instead of the head. What it wrote keeps its owners on disk.
	From string `json:"from,omitempty"`
}

// Prepared is a directory on the node, owned on disk by a fixed uid, to be mounted with an id map. An
// overlay mount can't be id-mapped, its layers can: where the view is an overlay, Layers names its
// parts and the node mounts it; Path is then not looked at.
type Prepared struct {
	Path   string  `json:"path"` // absolute, on the host
	UID    uint32  `json:"uid"`  // owner on disk, of Path or of the lower layers; the host's id of the payload where IDBase was given
	GID    uint32  `json:"gid"`
	Layers *Layers `json:"layers,omitempty"`
	Base   string  `json:"base"` // snapshot
	Files  int     `json:"files"`
}

// Layers are the parts of an overlay: absolute paths on the node. The lower ones are mapped as
// Prepared says. Upper and Work, on one file system, are given to the sandbox's own host ids by the node
// when it mounts: owners in the upper layer mean nothing, whoever merges it looks at modes only.
type Layers struct {
	Lower []string `json:"lower"` // the topmost first, at least one
	Upper string   `json:"upper,omitempty"`
	Work  string   `json:"work,omitempty"` // both empty: read-only
}

// Merge ends an overlay: its changes go into the head. Fenced by Attempt.
type Merge struct {
	Tenant    string   `json:"tenant"`
	Workspace string   `json:"workspace"`
	Owner     string   `json:"owner"`
	Attempt   int      `json:"attempt"`
	Sandbox   string   `json:"sandbox"`
	Principal string   `json:"principal"`
	Artifacts []Source `json:"artifacts,omitempty"` // further files for the zip, by path on the node: spooled output
	// Keep says whether the changes go into the head. A failed attempt's do not, but its artifact is made.
	Keep bool `json:"keep"`
}

// Source is a file on the node that goes into an artifact under Name.
type Source struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// Merged is what became of it.
type Merged struct {
	Snapshot     string   `json:"snapshot"`
	FilesChanged int      `json:"files_changed"`
	Conflicts    []string `json:"conflicts,omitempty"`
	Artifact     string   `json:"artifact,omitempty"`
	Skipped      []string `json:"skipped,omitempty"` // what can't be stored, with the reason: FIFOs, sockets, devices, names that are not UTF-8
}

// Discard throws an overlay away.
type Discard struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Owner     string `json:"owner"`
	Attempt   int    `json:"attempt"`
	Sandbox   string `json:"sandbox"`
}

// Held tells the service which sandboxes a node still has; what it prepared for others is removed.
type Held struct {
	Node      string   `json:"node"`
	Sandboxes []string `json:"sandboxes"`
	// AsOf is when the node made the list, by its clock, which is also the service's. What was prepared later stays.
	AsOf time.Time `json:"as_of"`
}

// Artifact is the record of what a task left for its owner, entity "artifact".
type Artifact struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Task      string    `json:"task"`
	Attempt   int       `json:"attempt"`
	Bytes     int64     `json:"bytes"`
	Files     int       `json:"files"`
	Hash      string    `json:"hash"` // SHA-256 of the zip, hex
	CreatedAt time.Time `json:"created_at"`
}

// ListRequest lists a directory, or a whole tree, of the head or of a snapshot.
type ListRequest struct {
	Path      string `json:"path,omitempty"`
	Snapshot  string `json:"snapshot,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	Limit     int    `json:"limit,omitempty"` // 1 to 10,000, 1,000 if 0
	Cursor    string `json:"cursor,omitempty"`
}

// ListReply is one page, sorted by path.
type ListReply struct {
	Snapshot string  `json:"snapshot"`
	Entries  []Entry `json:"entries"`
	Cursor   string  `json:"cursor,omitempty"`
}

// GetRequest opens a download. A directory comes as a tar stream, a file as its bytes from Offset.
type GetRequest struct {
	Path     string `json:"path"`
	Snapshot string `json:"snapshot,omitempty"`
	Offset   int64  `json:"offset,omitempty"`
}

// PutRequest opens an upload: of a file, or with Tar of a tree into the directory Path.
type PutRequest struct {
	Path     string `json:"path"`
	Mode     uint32 `json:"mode,omitempty"`
	Tar      bool   `json:"tar,omitempty"`
	Replace  bool   `json:"replace,omitempty"`   // with Tar: what is not in it is removed
	IfParent string `json:"if_parent,omitempty"` // only if the head is this snapshot, else conflict
}

// PutReply says what the head is now.
type PutReply struct {
	Snapshot string `json:"snapshot"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
}

// RemoveRequest removes a file or a tree from the head.
type RemoveRequest struct {
	Path string `json:"path"`
}

// SnapshotRequest names the present head, so that it is kept.
type SnapshotRequest struct {
	Message string `json:"message,omitempty"`
}

// SnapshotListRequest pages through snapshots, newest first.
type SnapshotListRequest struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// SnapshotListReply is one page.
type SnapshotListReply struct {
	Snapshots []Snapshot `json:"snapshots"`
	Cursor    string     `json:"cursor,omitempty"`
}

// DiffRequest compares two snapshots; an empty To is the head.
type DiffRequest struct {
	From   string `json:"from"`
	To     string `json:"to,omitempty"`
	Limit  int    `json:"limit,omitempty"` // 1 to 10,000, 1,000 if 0
	Cursor string `json:"cursor,omitempty"`
}

// DiffReply lists what differs, sorted by path.
type DiffReply struct {
	Changes []Change `json:"changes"`
	Cursor  string   `json:"cursor,omitempty"`
}

// Change is one path that differs.
type Change struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // added, removed, modified
	Size int64  `json:"size"`
}

// RestoreRequest makes a snapshot the head again. The history stays.
type RestoreRequest struct {
	Snapshot string `json:"snapshot"`
}

// DeleteWorkspace removes everything of a workspace; an empty Workspace, of the whole tenant.
type DeleteWorkspace struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace,omitempty"`
}
