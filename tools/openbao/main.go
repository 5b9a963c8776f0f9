// Command bao is the OpenBao server and its command line, built from a module of its own.
//
// The machine may well have no vault and no bao, and the module proxy has OpenBao's source but no
// binary. The module stands outside go.work because a workspace would unify its several hundred
// dependencies with ours.
package main

import (
	"os"

	"github.com/openbao/openbao/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:]))
}
