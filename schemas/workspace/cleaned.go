package workspace

import "time"

// OpNodeCleaned is on the int plane: a node tells what it found of its own that belonged to no record, and removed.
const OpNodeCleaned = "node-cleaned"

// MaxCleaned is how many items one Cleaned names at most; More counts the others.
const MaxCleaned = 200

// Cleaned is what a node removed in one go. It is the event "cleaned" of the node's record.
type Cleaned struct {
	At    time.Time     `json:"at"`
	Items []CleanedItem `json:"items"`
	More  int           `json:"more,omitempty"`
}

// CleanedItem is one thing that was left: a container, task, bundle, snapshot, runtime state, shim, mount, namespace, loop
// device, cgroup, socket, directory, layer, id range, or lease of containerd.
type CleanedItem struct {
	Kind string `json:"kind"`
	ID   string `json:"id"` // the sandbox's, or what else names it
}

// Count of all that was removed.
func (c Cleaned) Count() int { return len(c.Items) + c.More }

// NodeCleaned is the event of a node's record when it has removed leftovers.
const NodeCleaned = "cleaned"
