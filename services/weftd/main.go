package weftd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weftmesh/weft/pkg/app/calm"
	"github.com/weftmesh/weft/pkg/app/health"
	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/app/telemetry"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/bus"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas"
)

// daemon is one process: its configuration and what its parts share.
type daemon struct {
	cfg     *Config
	log     *slog.Logger
	metrics *mesh.Metrics
	health  *health.Server
	keys    *accounts.Keyring // nil where the keys are elsewhere
	bus     *bus.Server       // nil where the bus is elsewhere
	out     io.Writer
}

// Exit codes of weftd.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main runs weftd until ctx ends, and gives the exit code. "weftd is ready" goes to stdout when every
// part serves; the log goes to stderr.
func Main(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, env, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err == nil:
		err = run(ctx, cfg, stdout, stderr)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "weftd: %v\n", err)
	if fault.Is(err, fault.Invalid) {
		return exitUsage
	}
	return exitFailed
}

func run(ctx context.Context, cfg *Config, stdout, stderr io.Writer) error {
	if cfg.mint != "" {
		return mintCreds(cfg)
	}
	log, err := telemetry.Logger(stderr, cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return err
	}
	if err := calm.Monitor(calm.Slack); err != nil {
		log.Debug("the runtime's monitor stays as it is", "error", err)
	}
	if cfg.purge {
		return purge(ctx, cfg, log, stdout)
	}
	if err := os.MkdirAll(cfg.DataDir, 0o711); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the data directory %s can't be made; choose another with -data-dir", cfg.DataDir)
	}
	for _, t := range cfg.Targets {
		release, err := lock(cfg.DataDir, t)
		if err != nil {
			return err
		}
		defer release()
	}
	stopTracing, err := telemetry.Tracing(ctx, "weftd", cfg.dir("traces"))
	if err != nil {
		return err
	}
	defer stopTracing()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d := &daemon{cfg: cfg, log: log, metrics: mesh.NewMetrics(reg), out: stdout}
	if err := d.checkComponents(); err != nil {
		return err
	}
	if d.health, err = health.New(cfg.HTTP, reg); err != nil {
		return err
	}
	return lifecycle.Run(ctx, log, d.ready, d.parts()...)
}

// parts gives what this process runs, in the order in which it starts.
func (d *daemon) parts() []lifecycle.Part {
	ps := []lifecycle.Part{{Name: "health", Run: d.health.Run}}
	make := map[string]func() lifecycle.Part{
		partBus:                  d.busPart,
		schemas.WorkspaceManager: d.managerPart,
		schemas.Filesystem:       d.filesystemPart,
		schemas.Secrets:          d.secretsPart,
		schemas.Memory:           d.memoryPart,
		schemas.Runtime:          d.runtimePart,
	}
	for _, name := range parts {
		if d.cfg.has(name) {
			ps = append(ps, make[name]())
		}
	}
	if d.cfg.embedded() && d.cfg.has(schemas.WorkspaceManager) {
		ps = append(ps, lifecycle.Part{Name: "tenants", Start: d.ensureTenants})
	}
	return append(ps, lifecycle.Part{Name: "readiness", Start: d.awaitReady})
}

// readyWithin bounds how long the parts may take to be ready; a node takes up its sandboxes first.
const readyWithin = time.Minute

// awaitReady waits until every part that has a check passes it, so that who reads "ready" can begin.
func (d *daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		failing := d.health.Ready(ctx)
		if len(failing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "not ready after %s: %v", readyWithin, failing)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (d *daemon) busPart() lifecycle.Part {
	return lifecycle.Part{Name: partBus,
		Start: func(ctx context.Context) error {
			var err error
			if d.keys, err = accounts.OpenKeyring(d.cfg.dir("keys")); err != nil {
				return err
			}
			if d.cfg.Tenant != "" { // in the keys before the server starts, so that its account is known from the first moment
				if _, err := d.keys.AddTenant(d.cfg.Tenant); err != nil {
					return err
				}
			}
			d.bus, err = bus.Start(ctx, d.keys, bus.Config{Dir: d.cfg.dir("nats"), Listen: d.cfg.Listen, Logger: d.log})
			if err != nil {
				return err
			}
			d.health.Add(partBus, func(context.Context) error { return d.bus.Ready() })
			admin, err := d.connect(ctx, accounts.RoleAdmin)
			if err != nil {
				return err
			}
			defer admin.Close()
			return provision.All(ctx, admin.JetStream(), 1)
		},
		Stop: func() { d.bus.Stop() },
	}
}

// State is what a running weftd says of itself in <data-dir>/weftd.json, for tools on the same machine.
type State struct {
	PID     int      `json:"pid"`
	URL     string   `json:"url,omitempty"`
	HTTP    string   `json:"http"`
	Node    string   `json:"node"`
	Targets []string `json:"targets"`
	Tenant  string   `json:"tenant,omitempty"`
}

// ready tells the outside that every part serves.
func (d *daemon) ready() {
	s := State{PID: os.Getpid(), URL: d.cfg.NATSURL, HTTP: d.health.Addr(), Node: d.cfg.Node, Targets: d.cfg.Targets, Tenant: d.cfg.Tenant}
	if d.bus != nil {
		s.URL = d.bus.URL()
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = replaceFile(d.cfg.dir("weftd.json"), append(b, '\n'))
	}
	if err != nil {
		d.log.Warn("weftd.json not written", "err", err)
	}
	d.log.Info("ready", "url", s.URL, "http", s.HTTP, "node", s.Node, "targets", s.Targets)
	fmt.Fprintf(d.out, "weftd is ready: %s\n", b)
}

func replaceFile(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Clean(path))
}
