package weftd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/weftmesh/weft/services/filesystem"
	"github.com/weftmesh/weft/services/runtime"
	"github.com/weftmesh/weft/services/secrets/bao"
)

// purge ends everything that outlives weftd on the data directory: sandboxes, containerd, OpenBao, mounts. The
// data stays: records, files, secrets and memory. It refuses while a weftd runs there.
func purge(ctx context.Context, cfg *Config, log *slog.Logger, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, p := range parts {
		release, err := lock(cfg.DataDir, p)
		if err != nil {
			return err
		}
		defer release()
	}
	errs := []error{filesystem.Thaw(cfg.dir("files"))}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"sandboxes and containerd", func() error { return runtime.Purge(ctx, (&daemon{cfg: cfg, log: log}).nodeConfig(nil)) }},
		{"file overlays", func() error { return filesystem.Purge(cfg.dir("files")) }},
		{"OpenBao", func() error { return bao.StopIn(ctx, cfg.dir(vaultDir)) }},
	} {
		if err := step.do(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
			continue
		}
		fmt.Fprintf(out, "ended: %s\n", step.what)
	}
	return errors.Join(errs...)
}
