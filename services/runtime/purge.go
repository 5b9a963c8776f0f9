package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Purge destroys every sandbox of the data directory and ends its private containerd. No node may be
// running there. The journal is left: the next node finds that its sandboxes are gone, and says so.
func Purge(ctx context.Context, cfg Config) error {
	cfg = cfg.defaults()
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "containerd")); errors.Is(err, fs.ErrNotExist) {
		return nil // no node has ever run here
	}
	tools, err := cfg.engine()
	if err != nil {
		return err
	}
	engine, err := containerd.Open(ctx, tools)
	if err != nil {
		return err
	}
	node, err := sandbox.Open(engine, sandbox.Config{DataDir: cfg.DataDir, RunDir: cfg.RunDir, Init: cfg.Init, CLI: cfg.CLI,
		Forwards: supervisor.DefaultForwards(), Log: cfg.Log})
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	_, err = node.Reconcile(ctx, func(string) bool { return false })
	return errors.Join(err, node.Close(), engine.Stop(ctx))
}
