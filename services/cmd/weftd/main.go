// Command weftd is the one daemon of Weft: it runs all services, or those that -target names.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftmesh/weft/services/weftd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(weftd.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
