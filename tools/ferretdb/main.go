// Command ferretdb serves MongoDB's wire protocol over SQLite files, for tests of what speaks it.
//
// It embeds FerretDB, whose own command does not run when it is built from the module proxy (it
// wants a generated version file). Flags have the names of FerretDB's own. When it serves, its
// address is the first line on standard output, so that a test may ask for port 0:
//
//	ferretdb -listen-addr 127.0.0.1:0 -sqlite-url file:/some/dir/
//
// The module stands outside go.work because a workspace would unify its dependencies with ours.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func run() error {
	var config ferretdb.Config
	flag.StringVar(&config.Handler, "handler", "sqlite", "backend: sqlite is the only one built in")
	flag.StringVar(&config.SQLiteURL, "sqlite-url", "", "SQLite URI of an existing directory, as in file:/some/dir/")
	flag.StringVar(&config.Listener.TCP, "listen-addr", "127.0.0.1:0", "TCP address; empty for none")
	flag.StringVar(&config.Listener.Unix, "listen-unix", "", "path of a unix socket; empty for none")
	level := flag.String("log-level", "warn", "debug, info, warn or error")
	flag.Parse()

	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("-log-level %s: %w", *level, err)
	}
	if config.SQLiteURL == "" {
		return fmt.Errorf("-sqlite-url is needed: file:/some/dir/")
	}
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: threshold}))

	server, err := ferretdb.New(&config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	// The address is known only once Run listens, and asking for it waits for that.
	go func() { fmt.Println(server.MongoDBURI()) }()
	return server.Run(ctx)
}
