package weftd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
)

// credentials gives the user of role: minted here where the keys are, else from -creds, read again at
// every login so that a renewed file counts.
func (d *daemon) credentials(role string) func() (accounts.Credentials, error) {
	return func() (accounts.Credentials, error) {
		if d.keys != nil {
			if role == schemas.Runtime {
				return d.keys.Node(d.cfg.Node, d.cfg.Pool)
			}
			return d.keys.Service(role)
		}
		path := filepath.Join(d.cfg.CredsDir, role+".creds")
		b, err := os.ReadFile(path)
		if err != nil {
			return accounts.Credentials{}, fault.Wrap(err, fault.NotFound, "no credentials for %s in %s; `weftd -mint-creds DIR` writes them where the keys are", role, d.cfg.CredsDir)
		}
		return accounts.ParseFile(b)
	}
}

// connect logs in as role.
func (d *daemon) connect(ctx context.Context, role string) (*mesh.Conn, error) {
	o := mesh.Options{URL: d.cfg.NATSURL, Name: role, Credentials: d.credentials(role), Logger: d.log.With("as", role), Metrics: d.metrics}
	if role == schemas.Runtime {
		o.Name, o.JetStream = d.cfg.Node, accounts.NodeAPI
	}
	if d.bus != nil {
		o.URL, o.Dial = "", d.bus.InProcessConn
	}
	c, err := mesh.Connect(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("connect as %s: %w", role, err)
	}
	return c, nil
}

// mintCreds writes the credentials that processes on other machines need.
func mintCreds(cfg *Config) error {
	if !accounts.HasKeyring(cfg.dir("keys")) {
		return fault.New(fault.NotFound, "there are no keys in %s; run this where the bus runs", cfg.dir("keys"))
	}
	keys, err := accounts.OpenKeyring(cfg.dir("keys"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.mint, 0o700); err != nil {
		return err
	}
	for _, role := range []string{schemas.WorkspaceManager, schemas.Filesystem, schemas.Secrets, schemas.Memory, schemas.Runtime} {
		c, err := (&daemon{cfg: cfg, keys: keys}).credentials(role)()
		if err != nil {
			return err
		}
		b, err := c.File()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(cfg.mint, role+".creds"), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
