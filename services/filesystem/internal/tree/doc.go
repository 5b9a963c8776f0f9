// Package tree keeps what sandboxes see of a workspace on this node's disk.
//
// A layer is a tree of files made from a manifest, or what one manifest differs in from another; it is never changed.
// An overlay is one sandbox's private view: an overlayfs over layers, whose writable part is a small ext4 image of its own on a loop
// device, so that the sandbox gets ENOSPC when its quota is full and the node's disk does not. Mounts outlive this process; a
// file beside each overlay says what it is, so the next process finds it.
//
// Owners. Everything on disk belongs to Owner, whatever sandbox wrote it. Layers and image are idmapped with the
// sandbox's own range of ids and the overlay is mounted over those, because an overlay itself can't be idmapped. So
// the runtime bind-mounts Overlay.Path as it is: container id 1000 owns every file in it.
//
// Needs Linux 5.19 (overlay over idmapped layers), loop devices, mkfs.ext4, and root.
package tree

const (
	// OwnerBase is the first of the 65,536 ids that owners on disk come from: container id n is OwnerBase+n. It is the range
	// that systemd sets aside for files of containers at rest (foreign uids, 0x7FFE0000), so no account of the host has it.
	OwnerBase = 0x7FFE0000

	// Payload is the id in the container under which commands run and to which the workspace's files belong.
	Payload = 1000

	// Owner is uid and gid of the workspace's files on disk.
	Owner = OwnerBase + Payload

	// idRange is how many ids a sandbox has.
	idRange = 65536
)
