package weftd

import (
	"context"
	"os"
	"sync"

	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/bao"
)

// vaultDir is where our own OpenBao keeps its state.
const vaultDir = "vault"

// secretsPart runs the secrets service over the operator's Vault, or over an OpenBao of our own.
func (d *daemon) secretsPart() lifecycle.Part {
	var (
		server *bao.Server // nil with an external Vault
		vault  secrets.Vault
		conn   *mesh.Conn
		svc    *secrets.Service
		stop   func()
	)
	return lifecycle.Part{Name: schemas.Secrets,
		Start: func(ctx context.Context) error {
			options, external, err := d.vaultOptions()
			if err != nil {
				return err
			}
			if !external {
				bin, err := toolchain.Find("bao")
				if err != nil {
					return err
				}
				if server, err = bao.Open(ctx, bao.Config{Bin: bin, Dir: d.cfg.dir(vaultDir), Logger: d.log}); err != nil {
					return err
				}
				options.Server = server
			}
			if vault, err = secrets.Connect(options); err != nil {
				return err
			}
			if conn, err = d.connect(ctx, schemas.Secrets); err != nil {
				return err
			}
			if svc, err = secrets.New(secrets.Config{Vault: vault, Logger: d.log}.OnMesh(conn)); err != nil {
				return err
			}
			d.health.Add(schemas.Secrets, svc.Ready)
			stop, err = svc.Serve(conn)
			return err
		},
		Run: func(ctx context.Context) error {
			if server == nil {
				return svc.Run(ctx)
			}
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(ctx)
			var kept error
			wg.Go(func() { defer cancel(); kept = server.Run(ctx) })
			err := svc.Run(ctx)
			cancel()
			wg.Wait()
			if kept != nil {
				return kept
			}
			return err
		},
		Stop: func() {
			stop()
			conn.Close()
			vault.Close()
			if server != nil {
				server.Close() // it runs on for the next weftd
			}
		},
	}
}

// vaultOptions are those of the environment, as Vault's own tools read it; -vault-addr goes before VAULT_ADDR.
func (d *daemon) vaultOptions() (secrets.VaultOptions, bool, error) {
	o, external, err := secrets.VaultFromEnv(func(name string) string {
		if name == "VAULT_ADDR" && d.cfg.VaultAddr != "" {
			return d.cfg.VaultAddr
		}
		return os.Getenv(name)
	})
	o.Logger = d.log
	return o, external, err
}
