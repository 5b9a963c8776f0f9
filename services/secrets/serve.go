package secrets

import (
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
)

// How long a call may take at most; a caller who waits less ends it sooner.
const (
	callTimeout   = 15 * time.Second
	issueTimeout  = 20 * time.Second // far below abandonedAfter
	deleteTimeout = 60 * time.Second
)

// Serve serves every operation on the mesh until stop is called, which waits for the calls under way.
func (s *Service) Serve(c *mesh.Conn) (stop func(), err error) {
	req, err := c.ServeReq(schemas.Secrets,
		mesh.Op(wire.OpPut, callTimeout, s.Put),
		mesh.Op(wire.OpList, callTimeout, s.List),
		mesh.Op(wire.OpDelete, callTimeout, s.Delete),
		mesh.Op(wire.OpGrant, callTimeout, s.Grant),
		mesh.Op(wire.OpGrantList, callTimeout, s.GrantList),
		mesh.Op(wire.OpGrantRevoke, callTimeout, s.GrantRevoke),
		mesh.Op(wire.OpLeaseList, callTimeout, s.LeaseList),
		mesh.Op(wire.OpLeaseRevoke, callTimeout, s.LeaseRevoke),
		mesh.Op(wire.OpVerify, callTimeout, s.Verify),
	)
	if err != nil {
		return nil, err
	}
	internal, err := c.ServeInt(schemas.Secrets,
		mesh.Op(wire.OpIssue, issueTimeout, s.Issue),
		mesh.Op(wire.OpRenew, callTimeout, s.Renew),
		mesh.Op(wire.OpRevoke, callTimeout, s.Revoke),
		mesh.Op(wire.OpDeleteWorkspace, deleteTimeout, s.DeleteWorkspace),
	)
	if err != nil {
		req.Stop()
		return nil, err
	}
	return func() {
		req.Stop()
		internal.Stop()
	}, nil
}
