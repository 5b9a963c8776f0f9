package memory

import (
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
)

// How long a call may take at most; a caller who waits less ends it sooner.
const (
	callTimeout   = 15 * time.Second
	forgetTimeout = time.Minute // of many items; deletions too
)

// Serve serves every operation on the mesh until stop is called, which waits for the calls under way.
func (s *Service) Serve(c *mesh.Conn) (stop func(), err error) {
	req, err := c.ServeReq(schemas.Memory,
		mesh.Op(memory.OpAdd, callTimeout, s.Add),
		mesh.Op(memory.OpSupersede, callTimeout, s.Supersede),
		mesh.Op(memory.OpGet, callTimeout, s.Get),
		mesh.Op(memory.OpSearch, callTimeout, s.Search),
		mesh.Op(memory.OpList, callTimeout, s.List),
		mesh.Op(memory.OpForget, forgetTimeout, s.Forget),
		mesh.Op(memory.OpHistory, callTimeout, s.History),
		mesh.Op(memory.OpContext, callTimeout, s.Context),
	)
	if err != nil {
		return nil, err
	}
	internal, err := c.ServeInt(schemas.Memory,
		mesh.Op(memory.OpDeleteWorkspace, forgetTimeout, s.DeleteWorkspace),
		mesh.Op(memory.OpDeleteTenant, forgetTimeout, s.DeleteTenant),
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
