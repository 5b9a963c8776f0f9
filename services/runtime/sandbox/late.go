package sandbox

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// What is mounted on a mount of a container appears inside, but not under gVisor: it holds the directory that was
// there at the start. What is mounted below that directory does appear. So a sandbox of gVisor's whose workspace comes
// late has a directory for it at latePath, and its process 1 is told to show it at WorkspacePath when it is there. Nothing
// runs in it before.
const (
	latePath  = "/.weft/late"
	lateFiles = "files"
)

// showTimeout bounds what takes process 1 a millisecond.
const showTimeout = 20 * time.Second

// isLate says whether the workspace comes after the start, to a sandbox that can't see it by itself.
func (s *Sandbox) isLate(runtime string) bool {
	return runtime == containerd.Runsc && (s.blank != nil || s.spec.Files)
}

// makeLate makes its directory on the node. That it is there is how it is known later that the sandbox is such a one.
func (s *Sandbox) makeLate() error { return os.MkdirAll(s.path("late", lateFiles), 0o755) }

// workspace is where the node mounts what the sandbox sees at WorkspacePath.
func (s *Sandbox) workspace() string {
	if s.hasLate() {
		return s.path("late", lateFiles)
	}
	return s.path("workspace")
}

func (s *Sandbox) hasLate() bool {
	_, err := os.Lstat(s.path("late"))
	return err == nil
}

// maker is the user of the node's that makes files in the workspace for the payload: gVisor's programs do, as the root
// user of the sandbox's range, and then give them away. Nobody else needs one.
func (s *Sandbox) maker() uint32 {
	if s.hasLate() {
		return s.ids.first()
	}
	return 0
}

// lateMounts are a place for the workspace to be shown at, and the directory where it appears.
func (s *Sandbox) lateMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: WorkspacePath, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=0555", "size=4096"}},
		{Destination: latePath, Type: "bind", Source: s.path("late"), Options: []string{"rbind", "rslave", "nosuid", "nodev"}},
	}
}

// show has process 1 show the workspace, which was just mounted. Others see it by themselves. Again changes nothing.
func (s *Sandbox) show() error {
	if !s.hasLate() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout)
	defer cancel()
	if err := s.channel.Show(ctx); err != nil {
		return fmt.Errorf("show the workspace: %w", err)
	}
	return nil
}
