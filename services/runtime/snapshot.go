package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// SandboxSnapshot makes an image of a sandbox's own and of what the sandbox has changed of its root. The sandbox stands still
// meanwhile. The image is the tenant's: no other tenant's sandbox gets it.
func (s *Service) SandboxSnapshot(ctx context.Context, req runtime.SandboxSnapshot) (runtime.Snapshot, error) {
	s.mu.Lock()
	i := s.serving[req.ID]
	s.mu.Unlock()
	if i == nil {
		return runtime.Snapshot{}, notHere(req.ID)
	}
	if err := s.checkSnapshot(req.Image, i.e.Sandbox.Tenant); err != nil {
		return runtime.Snapshot{}, err
	}
	if err := s.diskLeft(); err != nil {
		return runtime.Snapshot{}, err
	}
	var out runtime.Snapshot
	err := i.do(ctx, func(ctx context.Context) error {
		return i.h.hush(ctx, func() error {
			made, err := i.box.Snapshot(ctx, req.Image)
			out = runtime.Snapshot{Image: made.Name, Digest: made.Digest, Layer: made.Layer}
			return err
		})
	})
	return out, err
}

// diskLeft refuses what would take more of a disk on which nothing new is begun either.
func (s *Service) diskLeft() error {
	disk, err := sandbox.FreeDisk(s.cfg.DataDir)
	if err == nil && disk < s.cfg.MinFree {
		err = fmt.Errorf("%d bytes are free", disk)
	}
	return fault.Wrap(err, fault.Exhausted, "node %s has too little free disk; delete templates of snapshots that nobody needs, or ask whoever runs it", s.cfg.Node)
}

// checkSnapshot refuses names under which somebody else would find the image, or nobody.
func (s *Service) checkSnapshot(name, tenant string) error {
	rest, ok := strings.CutPrefix(name, workspace.SnapshotPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || parts[0] != tenant || parts[1] != s.cfg.Node {
		return fault.New(fault.Denied, "a snapshot of tenant %s on node %s can't be called %.100q", tenant, s.cfg.Node, name)
	}
	if err := errors.Join(schemas.CheckName("tenant", parts[0]), schemas.CheckID("snapshot", parts[2])); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// SnapshotRemove removes an image that a snapshot made. Doing it again is no error.
func (s *Service) SnapshotRemove(ctx context.Context, req runtime.SnapshotRef) error {
	return s.node.RemoveSnapshot(ctx, req.Image)
}

// snapshots lists the images that snapshots made here, for the manager, who knows which are still wanted.
func (s *Service) snapshots(ctx context.Context) []workspace.SnapshotImage {
	list, err := s.node.Snapshots(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("the snapshots of this node can't be listed now", "error", err)
		}
		return nil
	}
	var out []workspace.SnapshotImage
	for _, i := range list {
		out = append(out, workspace.SnapshotImage{Image: i.Name, CreatedAt: i.CreatedAt.UTC()})
	}
	return out
}
