// Package filesystem is the filesystem service: it owns the files of workspaces on one node. A workspace has a head, which is
// an immutable tree of content-addressed chunks; every change makes a new one by compare-and-set. A sandbox works in a private overlay over the
// head it started from; at its end the changes are merged into what the head is then.
//
// # Subjects in
//
//	req.*.*.*.filesystem.{list,stat,remove,snapshot,snapshot-list,snapshot-diff,snapshot-restore,artifact-list}
//	req.*.*.*.filesystem.{get,put,artifact-get}             byte streams, on the channel "data"
//	int.*.filesystem.{prepare,merge,discard,held}           from nodes; the node's name is that of the subject
//	int.*.filesystem.delete-workspace                       from the workspace-manager and the operator
//
// # Subjects out
//
//	evt.<tenant>.<workspace>.head.head          put, removed, merged, restored
//	evt.<tenant>.<workspace>.snapshot.<id>      created, named
//	evt.<tenant>.<workspace>.overlay.<owner>    opened, merged, discarded
//	evt.<tenant>.<workspace>.artifact.<id>      created
//	int.filesystem.workspace-manager.attempt    who holds a task; also reads evt.<tenant>.-.workspace.<name> for the quota
//
// # On disk, below DataDir
//
//	chunks/<tenant>/            contents and manifests by SHA-256; see internal/chunks
//	layers/<tenant>/<workspace> trees made from manifests, the lower parts of overlays; see internal/tree
//	overlays/<sandbox>/         overlay.json, the sandbox's disk image and its mounts
//	volumes/                    empty disk images, one for each size that was asked for
//	artifacts/<tenant>/<workspace>/<id>.zip
//
// Chunks and artifacts are the only copy of what they hold. Layers and volumes can be made again; overlays end with the machine.
//
// # States
//
// An overlay: open → merged or discarded. The record is the fence: preparing attempt N makes whatever
// attempt below N still does a conflict. Prepare and merge also ask the workspace-manager whether the attempt
// is the one that runs, on the node that asks.
//
// # What happens when it fails
//
//   - Killed before the head's record: nothing happened; chunks that nobody names are swept. The overlay is as it was, so
//     the merge can be asked again.
//   - Killed after it: the merge took place. Its snapshot's id follows from owner and attempt, so a repeat finds it, makes the
//     artifact and the overlay's record, and gives the same answer. The snapshot's own record is made up for from the head's by whoever
//     changes the head next.
//   - Killed while an overlay is made or removed: it is made afresh, or removed by Held.
//   - The machine restarted: overlays are gone with their mounts, a merge says not_found; the head is whole.
//   - Two processes on one head: the compare-and-set decides, the other gets a conflict. Two on one DataDir must not be; the
//     daemon's lock sees to that.
//   - The node's disk is full: exhausted, and nothing was changed. A sandbox fills only its own image.
//
// No path from outside is ever resolved by the kernel: a path of a request is looked up in manifests; a sandbox's tree is read
// one name at a time with openat2, never following symlinks; see internal/dirs.
package filesystem
