// Command containerd-shim-runsc-v1 is gVisor's shim, which containerd starts for sandboxes of level
// high, but for how it comes up: see manager.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/pkg/shim"
	v1 "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin" // registers the service that runs containers
)

func main() {
	const name = "io.containerd.runsc.v1"
	shim.Run(context.Background(), manager{v1.NewShimManager(name)})
}
