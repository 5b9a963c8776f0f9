// Package tree keeps what sandboxes see of a workspace on this node's disk.
//
// A layer is a tree of files made from a manifest, or what one manifest differs in from another; it is never changed.
// An overlay is one sandbox's private view: an overlayfs over layers, whose writable part is a small ext4 image of its own on a loop
// device, so that the sandbox gets ENOSPC when its quota is full and the node's disk does not. Mounts outlive this process; a
// file beside each overlay says what it is, so the next process finds it.
//
// Owners. Layers on disk belong to Owner, whatever sandbox wrote the files first. There are two ways to show them to a sandbox as
// its own. Either the runtime idmaps the layers and mounts the overlay, which then writes into upper with the sandbox's host
// ids; Parts says of what. Or Prepare does it: with Overlay.IDBase layers and disk are idmapped with the sandbox's range and the overlay is
// mounted over those, because an overlay itself can't be idmapped; then Path is to be bound as it is, and upper belongs to
// Owner, too. Reading the changes back never looks at owners.
//
// Needs Linux 5.19 (overlay over idmapped layers), loop devices, mkfs.ext4, and root.
package tree

import "github.com/weftmesh/weft/schemas/filesystem"

const (
	// OwnerBase is the first of the 65,536 ids that owners on disk come from: container id n is OwnerBase+n. It is the range
	// that systemd sets aside for files of containers at rest (foreign uids, 0x7FFE0000), so no account of the host has it.
	OwnerBase = 0x7FFE0000

	// Payload is the id in the container under which commands run and to which the workspace's files belong.
	Payload = 1000

	// Owner is uid and gid of the workspace's files on disk: OwnerBase + Payload.
	Owner = filesystem.OwnerID

	// idRange is how many ids a sandbox has.
	idRange = 65536
)
