// Command weft-init is process 1 of every sandbox; see package weftinit.
package main

import (
	"os"

	"github.com/weftmesh/weft/services/runtime/weftinit"
)

func main() {
	os.Exit(weftinit.Main(os.Args, os.Stderr))
}
