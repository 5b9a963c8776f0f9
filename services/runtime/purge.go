package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

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
	err = errors.Join(err, node.Close(), engine.Stop(ctx), sandbox.UnmountBelow(cfg.DataDir))
	if err == nil && cfg.RunDir == sandbox.RunDirOf(cfg.DataDir) { // ours alone, and nothing in it outlives this
		err = removeAll(ctx, cfg.RunDir)
	}
	return err
}

// removeAll removes a directory into which shims that are just ending may still write.
func removeAll(ctx context.Context, dir string) error {
	for {
		err := os.RemoveAll(dir)
		if err == nil || ctx.Err() != nil || !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
