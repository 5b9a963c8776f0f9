// Command containerd-shim-runsc-v1 is gVisor's shim, which containerd starts for sandboxes of level
// high, but for how it comes up and for serving more than one of them: see manager and service.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/pkg/shim"
	v1 "gvisor.dev/gvisor/pkg/shim/v1"
)

func main() {
	const name = "io.containerd.runsc.v1"
	register()
	shim.Run(context.Background(), manager{v1.NewShimManager(name)})
}
