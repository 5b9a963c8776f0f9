package manager

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Config says what a Service needs. Zero values take the defaults that are named.
type Config struct {
	Conn *mesh.Conn // as the role workspace-manager

	// KeyFile is the key under which tenants' signing keys are stored. It is made (0600) if it is not
	// there; replicas share one.
	KeyFile string
	// Instance names this replica. A process that starts under the name of one that died takes over its
	// leadership at once; others wait for the lease to end. Two that run never share a name.
	Instance string
	Replicas int // of new tenants' streams; 1

	ClaimLease     time.Duration // a claim lasts so long without renewal; 10 s
	ClaimGrace     time.Duration // the reconciler waits so much longer, so that the node has frozen first; 2 s
	NodeTimeout    time.Duration // a node without heartbeat for so long is lost; 10 s
	Overrun        time.Duration // how much longer than its limit an attempt may run before the manager steps in; 30 s
	ReconcileEvery time.Duration // 1 s
	QueueCheck     time.Duration // a queued attempt not claimed for so long is looked for in the queue; 3 s
	Retention      time.Duration // of ended tasks; 7 days
	RetentionEvery time.Duration // 1 min
	FollowLimit    time.Duration // events and task-output end a follow after so long; 10 min

	MinDiskFree  int64         // a node with less takes nothing new; 1 GiB, negative for no mark
	KeepSnapshot time.Duration // an image of a snapshot that nothing names stays so long, and all do so long after a replica began to lead; 5 min

	QueueMargin int             // attempts in the queue beyond the nodes' free slots; 4
	Concurrency int             // messages of one consumer handled at once; 32
	Quota       workspace.Quota // of tenants that have none; 10,000 pending, 16 sandboxes, 16 pool members

	Storing func() error     // why the mesh's server stores nothing now, as for a full disk; nil where it runs elsewhere
	Purgers []Purger         // who else removes a workspace's things; nil is the services that own such things
	Now     func() time.Time // time.Now
}

// Purger is another service that removes what it has of a workspace or a tenant. Doing it again is no error.
type Purger interface {
	Name() string
	DeleteWorkspace(ctx context.Context, tenant, workspace string) error
	DeleteTenant(ctx context.Context, tenant string) error
}

func (c *Config) check() error {
	switch {
	case c.Conn == nil:
		return errors.New("manager: no connection")
	case c.KeyFile == "":
		return errors.New("manager: no key file")
	case c.Instance == "":
		return errors.New("manager: no instance name")
	}
	def(&c.Replicas, 1)
	def(&c.ClaimLease, 10*time.Second)
	def(&c.ClaimGrace, 2*time.Second)
	def(&c.NodeTimeout, 10*time.Second)
	def(&c.Overrun, 30*time.Second)
	def(&c.ReconcileEvery, time.Second)
	def(&c.QueueCheck, 3*time.Second)
	def(&c.Retention, 7*24*time.Hour)
	def(&c.RetentionEvery, time.Minute)
	def(&c.FollowLimit, 10*time.Minute)
	def(&c.MinDiskFree, 1<<30)
	def(&c.KeepSnapshot, keepSnapshot)
	def(&c.QueueMargin, 4)
	def(&c.Concurrency, 32)
	def(&c.Quota.MaxPending, 10_000)
	def(&c.Quota.Sandboxes, 16)
	def(&c.Quota.PoolMembers, 16)
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
