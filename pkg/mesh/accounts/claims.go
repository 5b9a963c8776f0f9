package accounts

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/schemas"
)

// responseThreshold ends a many-reply request after so long without a reply. Those who stream send
// keepalives well within it.
const responseThreshold = 30 * time.Second

func service(subject string, many bool) *jwt.Export {
	e := &jwt.Export{Name: subject, Subject: jwt.Subject(subject), Type: jwt.Service, ResponseType: jwt.ResponseTypeSingleton}
	if many {
		e.ResponseType, e.ResponseThreshold = jwt.ResponseTypeStream, responseThreshold
	}
	return e
}

func stream(subject string) *jwt.Export {
	return &jwt.Export{Name: "stream " + subject, Subject: jwt.Subject(subject), Type: jwt.Stream}
}

// weftClaims are wildcards and never change: a new tenant is a new account, not a new export.
func (k *Keyring) weftClaims() *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(k.weft.key))
	c.Name = "WEFT"
	c.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1,
		MaxAckPending: -1, MemoryMaxStreamBytes: -1, DiskMaxStreamBytes: -1}
	c.Exports.Add(
		service("weft.v1.req.>", true), service("weft.v1.task.>", false), service("weft.v1.msg.>", false),
		stream("weft.v1.evt.>"),
		service("weft.v1.int.>", false), service("weft.v1.out.>", false), service("weft.v1.audit.>", false),
		service("$JS.API.CONSUMER.MSG.NEXT.QUEUE.*", true), service("$JS.API.CONSUMER.INFO.QUEUE.*", false),
		service("$JS.ACK.QUEUE.>", false),
	)
	nodes := public(k.nodes.key)
	c.Imports.Add(imports(nodes, "weft.v1.node.>", jwt.Service))
	k.weft.scope(c, weftRoles())
	return c
}

func (k *Keyring) nodesClaims() *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(k.nodes.key))
	c.Name = "NODES"
	weft := public(k.weft.key)
	for _, s := range []string{"weft.v1.int.>", "weft.v1.out.>", "weft.v1.audit.>", "$JS.ACK.QUEUE.>"} {
		c.Imports.Add(imports(weft, s, jwt.Service))
	}
	for _, s := range []string{"CONSUMER.MSG.NEXT.QUEUE.", "CONSUMER.INFO.QUEUE."} {
		i := imports(weft, "$JS.API."+s+"*", jwt.Service)
		i.LocalSubject = jwt.RenamingSubject(NodeAPI + "." + s + "$1")
		c.Imports.Add(i)
	}
	// Live output goes to tenants from here: what comes into WEFT by a service import is stored there, but
	// the server hands it to no third account's stream import.
	c.Exports.Add(service("weft.v1.sbx.>", true), service("weft.v1.node.>", true), stream("weft.v1.out.>"))
	k.nodes.scope(c, []Role{nodeRole()})
	return c
}

func (k *Keyring) tenantClaims(t *account) *jwt.AccountClaims {
	c := jwt.NewAccountClaims(public(t.key))
	c.Name = t.name
	weft, nodes := public(k.weft.key), public(k.nodes.key)
	for _, p := range []schemas.Plane{schemas.PlaneReq, schemas.PlaneTask, schemas.PlaneMsg} {
		c.Imports.Add(imports(weft, schemas.Prefix+string(p)+"."+t.name+".>", jwt.Service))
	}
	c.Imports.Add(imports(nodes, "weft.v1.sbx."+t.name+".>", jwt.Service))
	c.Imports.Add(imports(weft, "weft.v1.evt."+t.name+".>", jwt.Stream))
	c.Imports.Add(imports(nodes, "weft.v1.out."+t.name+".>", jwt.Stream))
	t.scope(c, tenantRoles(t.name))
	return c
}

func imports(from, subject string, kind jwt.ExportType) *jwt.Import {
	return &jwt.Import{Name: fmt.Sprintf("%s %s", kind, subject), Subject: jwt.Subject(subject), Account: from, Type: kind}
}

// scope adds the roles to the claims, each with its own signing key.
func (a *account) scope(c *jwt.AccountClaims, roles []Role) {
	for _, r := range roles {
		s := jwt.NewUserScope()
		s.Key = public(a.roles[r.Name])
		s.Role = r.Name
		s.Template.Permissions.Pub.Allow.Add(r.Pub...)
		s.Template.Permissions.Sub.Allow.Add(r.Sub...)
		c.SigningKeys.AddScopedSigner(s)
	}
}

// encode validates the claims and signs them with the operator's key.
func (k *Keyring) encode(c *jwt.AccountClaims) (string, error) {
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if errs := vr.Errors(); len(errs) > 0 {
		return "", fmt.Errorf("account %s: %w", c.Name, errs[0])
	}
	return c.Encode(k.operator)
}

func public(k nkeys.KeyPair) string {
	p, err := k.PublicKey()
	if err != nil {
		panic(err) // a key pair of ours always has its public half
	}
	return p
}
