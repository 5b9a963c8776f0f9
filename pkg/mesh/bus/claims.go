package bus

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
)

// claimReply is what a server says to an update or a deletion of an account's claims.
type claimReply struct {
	Data  *struct{ Code int } `json:"data"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// PushAccount gives an account's JWT to the servers. nc is a connection of the system account.
func PushAccount(ctx context.Context, nc *nats.Conn, token string) error {
	return claims(ctx, nc, "$SYS.REQ.CLAIMS.UPDATE", token)
}

// DeleteAccount removes an account from the servers; request is Keyring.DeleteRequest's.
func DeleteAccount(ctx context.Context, nc *nats.Conn, request string) error {
	return claims(ctx, nc, "$SYS.REQ.CLAIMS.DELETE", request)
}

func claims(ctx context.Context, nc *nats.Conn, subject, body string) error {
	m, err := nc.RequestWithContext(ctx, subject, []byte(body))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "no NATS server answers for its accounts; is the mesh running?")
	}
	var r claimReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	if r.Error != nil {
		return fault.Wrap(fmt.Errorf("%w: %s", errNotAccepted, r.Error.Description), fault.Denied, "the NATS server did not accept the account")
	}
	return nil
}
