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

// Open reads what was sealed to a node: with its curve key, and the public key that came with the reply.
func Open(node nkeys.KeyPair, r wire.IssueReply) (wire.Issued, error) {
	var out wire.Issued
	b, err := node.Open(r.Sealed, r.SealedBy)
	if err != nil {
		return out, fault.Wrap(err, fault.Denied, "the credentials are not sealed to this node's key")
	}
	if json.Unmarshal(b, &out) != nil {
		return out, fault.New(fault.Internal, "the sealed credentials can't be read")
	}
	return out, nil
}
