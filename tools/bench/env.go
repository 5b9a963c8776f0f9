package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/bus"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mounts"
)

// Env is what benchmarks share: a folder, an embedded bus, a whole mesh; each is made when first asked for.
type Env struct {
	dir   string
	root  string // of the repository
	keys  *accounts.Keyring
	bus   *bus.Server
	undo  []func()
	world *world
	later []string // sandboxes to be killed outside of the clock
}

func newEnv() (*Env, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return nil, err
	}
	return &Env{dir: dir, root: root, undo: []func(){func() {
		_, _ = mounts.Detach(dir) // runsc run leaves one
		_ = os.RemoveAll(dir)
	}}}, nil
}

// repository is the folder of go.work.
func repository() (string, error) {
	d, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.work")); err == nil {
			return d, nil
		}
	}
	return "", errors.New("run this inside the repository")
}

func (e *Env) close() {
	for i := len(e.undo) - 1; i >= 0; i-- {
		e.undo[i]()
	}
}

// service connects to the embedded bus as one of the services.
func (e *Env) service(ctx context.Context, role string) (*mesh.Conn, error) {
	if e.bus == nil {
		if err := e.startBus(ctx); err != nil {
			return nil, fmt.Errorf("bus: %w", err)
		}
	}
	return mesh.Connect(ctx, mesh.Options{URL: e.bus.URL(), Name: role, Credentials: func() (accounts.Credentials, error) { return e.keys.Service(role) }})
}

func (e *Env) startBus(ctx context.Context) error {
	var err error
	if e.keys, err = accounts.OpenKeyring(filepath.Join(e.dir, "bus-keys")); err != nil {
		return err
	}
	if _, err = e.keys.AddTenant("bench"); err != nil {
		return err
	}
	e.bus, err = bus.Start(ctx, e.keys, bus.Config{Dir: filepath.Join(e.dir, "bus"), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	e.undo = append(e.undo, e.bus.Stop)
	admin, err := e.service(ctx, accounts.RoleAdmin)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := provision.All(ctx, admin.JetStream(), 1); err != nil {
		return err
	}
	return provision.Apply(ctx, admin.JetStream(), provision.Tenant("bench", 1))
}
