// Command weft is the operator's CLI; it is also mounted in every sandbox.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftmesh/weft/services/cli"
	"github.com/weftmesh/weft/services/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr,
		cli.Command{Name: "demo", Short: "Show a whole mesh at work on a code base", Run: demo.Main})
	stop()
	os.Exit(code)
}
