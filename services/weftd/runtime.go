package weftd

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/runtime"
	"github.com/weftmesh/weft/services/secrets/forward"
	"github.com/weftmesh/weft/services/secrets/scrub"
)

// runtimePart runs this machine's node.
func (d *daemon) runtimePart() lifecycle.Part {
	var (
		conn *mesh.Conn
		svc  *runtime.Service
	)
	return lifecycle.Part{Name: schemas.Runtime,
		Start: func(ctx context.Context) error {
			var err error
			if conn, err = d.connect(ctx, schemas.Runtime); err != nil {
				return err
			}
			svc, err = runtime.New(d.nodeConfig(conn).OnMesh(conn))
			if err != nil {
				return err
			}
			d.health.Add(schemas.Runtime, func(context.Context) error { return svc.Ready() })
			return nil
		},
		Run:  func(ctx context.Context) error { return svc.Run(ctx) },
		Stop: func() { conn.Close() },
	}
}

// nodeConfig is what the node is told, without what it takes from the mesh.
func (d *daemon) nodeConfig(conn *mesh.Conn) runtime.Config {
	return runtime.Config{
		Node: d.cfg.Node, Pool: d.cfg.Pool, Version: version(), DataDir: d.cfg.dir(schemas.Runtime),
		Init: d.cfg.Init, CLI: d.cfg.CLI, Slots: d.cfg.Slots, Registries: d.cfg.Registries, MinFree: d.cfg.Watermark, Log: d.log,
		DialMesh: d.dialMesh, Scrub: scrubbers,
		Vault: func(s runtime.VaultSession) (http.Handler, error) { return d.vaultHandler(conn, s) },
	}
}

// dialMesh connects to the bus for a sandbox, which the node then logs in.
func (d *daemon) dialMesh(ctx context.Context) (net.Conn, error) {
	if d.bus != nil {
		return d.bus.InProcessConn()
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(d.cfg.NATSURL, "nats://"), ",")
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
}

// vaultHandler is what a sandbox finds at its VAULT_ADDR.
func (d *daemon) vaultHandler(conn *mesh.Conn, s runtime.VaultSession) (http.Handler, error) {
	return forward.New(forward.Config{
		Addr: s.Issued.VaultAddr, Namespace: s.Issued.VaultNamespace, Token: s.Issued.VaultToken, Paths: s.Issued.VaultPaths, Logger: d.log,
		Who:   wire.Audit{Tenant: s.Tenant, Workspace: s.Workspace, Task: s.Task, Attempt: s.Attempt, Sandbox: s.Sandbox, Agent: s.Principal, Node: d.cfg.Node},
		Audit: func(entry wire.Audit) { d.audit(conn, entry) },
	})
}

// audit writes that a sandbox used a secret. The request it is about has been answered and does not wait.
func (d *daemon) audit(conn *mesh.Conn, entry wire.Audit) {
	subject, err := schemas.Audit(entry.Tenant, wire.AuditCategory)
	if err == nil {
		var b []byte
		if b, err = json.Marshal(entry); err == nil {
			_, err = conn.PublishAsync(&nats.Msg{Subject: subject, Data: b})
		}
	}
	if err != nil {
		d.log.Error("audit entry not written", "tenant", entry.Tenant, "sandbox", entry.Sandbox, "err", err)
	}
}

// scrubbers takes exact values out of output.
func scrubbers(values []string) func() runtime.Scrubber {
	set := scrub.Compile(values)
	return func() runtime.Scrubber { return set.Stream() }
}
