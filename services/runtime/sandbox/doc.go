// Package sandbox makes, finds again and destroys the sandboxes of one node.
//
// A sandbox is one container with weft-init as its process 1. What isolates it is data: see
// level.go, and Describe for what it comes to. What is there for it on the node hangs on its identifier, so that each part can be found
// and removed without the others:
//
//	containerd namespace "weft"        container, task and snapshot <id>, labelled with owner and contents
//	<run>/sb/<id>/                     pinned namespaces, the workspace's mount point, the secrets' tmpfs, input, /etc files
//	<run>/sb/<id>/bound.json           for whom one that waited was claimed (record.go)
//	<data>/layers/<id>.img             the disk of a writable root, mounted at <run>/sb/<id>/disk (layer.go, root.go)
//	<run>/sup/<id>/                    the supervisor's socket and key (package supervisor)
//	<run>/ranges/<n>                   which sandbox holds the n-th range of 65,536 host ids
//	cgroup /weft/<owner>/<id>          limits, freezer, usage
//
// <run> is on a file system that does not outlive a boot, as the sandboxes do not. The owner is
// derived from the data directory: two nodes on one machine leave each other's sandboxes alone.
//
// # Warm sandboxes
//
// CreateBlank makes a sandbox that waits; its Mold is what can't be changed later. Bind makes it somebody's in a
// millisecond or two: record first, then limits, names, files. The id above is the body's; what was claimed
// is known to everybody by the id of its claim, which the record translates.
//
// # Twice, or dead in the middle
//
// Create makes its directory first, so whatever it leaves behind when the process dies is found by
// that directory, by the labels, or by the control group. Reconcile removes everything of ours that
// the caller does not want to keep, also what only the kernel's tables and containerd's still tell of: mounts, pinned
// namespaces, loop devices, tasks, leases; it says what that was. Destroy is the same for one sandbox. Both can be repeated at any
// point. Adopt finds the sandboxes that run after a restart of the node's process; their supervisors
// connect by themselves.
//
// A claim is a link(2) of its record: of all who try, in whatever process, one gets it. A process that dies
// after that leaves a sandbox that belongs to the claim, is found by its id, and has to be destroyed.
package sandbox
