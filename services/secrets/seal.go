package secrets

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	wire "github.com/weftmesh/weft/schemas/secrets"
)

// sealTo makes the reply that only the holder of the node's curve key can read.
func (s *Service) sealTo(nodeKey string, issued wire.Issued, expires time.Time, leases int) (wire.IssueReply, error) {
	if !nkeys.IsValidPublicCurveKey(nodeKey) {
		return wire.IssueReply{}, fault.New(fault.Internal, "the workspace-manager knows no curve key of this node; the node claims again with one")
	}
	b, err := json.Marshal(issued)
	if err != nil {
		return wire.IssueReply{}, fault.New(fault.Internal, "the credentials could not be written as JSON") // the cause could show a value
	}
	sealed, err := s.curve.Seal(b, nodeKey)
	if err != nil {
		return wire.IssueReply{}, fault.Wrap(err, fault.Internal, "the credentials could not be sealed")
	}
	return wire.IssueReply{Sealed: sealed, SealedBy: s.seal, ExpiresAt: expires, Leases: leases}, nil
}
