package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/weftmesh/weft/pkg/fault"
)

// Exit codes of the command, as those of weft.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

const usage = `demo starts a mesh of its own, has agents audit a code base twice, kills the daemon in the
middle, lets an agent misbehave, and checks all of it. It ends with 0 only if everything held.

Usage:
  weft demo [flags]

Flags:
  --input DIR    directory of the code base to audit (default .)
  --output DIR   directory for reports and artifacts (default ./weft-demo)
  --keep         leave the mesh running, to look around in it
`

// Main is the command `weft demo`: it parses args, runs the show, and gives the exit code.
func Main(ctx context.Context, args, env []string, _ io.Reader, stdout, stderr io.Writer) int {
	o := Options{Env: env}
	f := flag.NewFlagSet("weft demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Input, "input", ".", "")
	f.StringVar(&o.Output, "output", "weft-demo", "")
	f.BoolVar(&o.Keep, "keep", false, "")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "weft: %v; see 'weft demo --help'\n", err)
		return exitUsage
	case f.NArg() > 0:
		fmt.Fprintf(stderr, "weft: unexpected argument %q; see 'weft demo --help'\n", f.Arg(0))
		return exitUsage
	}
	o.ForWriter(stdout, env)
	res, err := Run(ctx, o)
	switch {
	case ctx.Err() != nil && res != nil && res.Removed:
		fmt.Fprintln(stderr, "weft: interrupted; the demo's mesh is stopped and removed")
		return exitInterrupted
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "weft: interrupted: %v\n", err)
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(stderr, "weft: %v\n", err)
		if fault.Is(err, fault.Invalid) {
			return exitUsage
		}
		return exitFailed
	case !res.OK():
		return exitFailed
	}
	return exitOK
}
