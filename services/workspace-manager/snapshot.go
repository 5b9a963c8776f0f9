package manager

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// keepSnapshot is how long an image that nothing names is left alone: its template may be about to be written.
const keepSnapshot = 5 * time.Minute

// snapshotName of an image that is on one node: both its tenant and that node can be read from it.
func snapshotName(tenant, node string) string {
	return workspace.SnapshotPrefix + tenant + "/" + node + "/" + schemas.NewID()
}

// pinOf is the only node on which an image is, "" for all that are not of a snapshot, and for those pin.
func pinOf(image, pin string) string {
	rest, ok := strings.CutPrefix(image, workspace.SnapshotPrefix)
	if parts := strings.Split(rest, "/"); ok && len(parts) == 3 {
		return parts[1]
	}
	return pin
}

// checkSnapshot refuses an image that another tenant's snapshot made. The node refuses it too.
func checkSnapshot(image, tenant string) error {
	if rest, ok := strings.CutPrefix(image, workspace.SnapshotPrefix); ok && !strings.HasPrefix(rest, tenant+"/") {
		return fault.New(fault.Denied, "image %.200q is not a snapshot of tenant %s", image, tenant)
	}
	return nil
}

// SandboxSnapshot makes a template of what a sandbox has changed of its root: the node makes the image, then the template is
// written. A manager that dies in between leaves an image that nothing names, which the reconciler removes.
func (s *Service) SandboxSnapshot(ctx context.Context, by mesh.Caller, req workspace.SandboxSnapshot) (workspace.Template, error) {
	var none workspace.Template
	if err := invalid(schemas.CheckName("template", req.Template)); err != nil {
		return none, err
	}
	r, err := s.copied(ctx, by, req.ID)
	if err != nil {
		return none, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return none, err
	}
	run := r.Value.Run
	t := workspace.Template{Level: run.Level, Resources: run.Resources, Workdir: run.Workdir, Isolation: run.Isolation}
	if old, err := v.template(ctx, by.Workspace, r.Value.Template); err == nil {
		t = *old
	} else if !fault.Is(err, fault.NotFound) {
		return none, err
	}
	t.Name, t.Version = req.Template, 0
	snap, err := s.calls.SnapshotSandbox(ctx, r.Value.Node, runtime.SandboxSnapshot{ID: r.ID, Image: snapshotName(by.Tenant, r.Value.Node)})
	if err != nil {
		return none, err
	}
	t.Image = snap.Image
	return s.TemplatePut(ctx, by, workspace.Put[workspace.Template]{Value: t})
}

// reconcileSnapshots removes the images of snapshots that no template, no sandbox and no task names.
func (s *Service) reconcileSnapshots(ctx context.Context, now time.Time) error {
	kept := s.nodes.snapshots()
	if len(kept) == 0 {
		return nil
	}
	used := map[string]bool{}
	for _, v := range s.tenants.views() {
		for _, r := range v.templates.in("*") {
			used[r.Value.Image] = true
		}
		for _, r := range v.sandboxes.inLife() {
			used[r.Value.Run.Image] = true
		}
		for _, t := range v.tasks.unfinished() {
			used[t.Image] = true
		}
	}
	var errs []error
	for node, images := range kept {
		for _, i := range images {
			if !used[i.Image] && now.Sub(i.CreatedAt) > s.cfg.KeepSnapshot {
				s.log.Info("a snapshot that nothing names is removed", "node", node, "image", i.Image)
				errs = append(errs, s.calls.RemoveSnapshot(ctx, node, runtime.SnapshotRef{Image: i.Image}))
			}
		}
	}
	return errors.Join(errs...)
}

// snapshots are the images of snapshots by node, of the nodes that answer.
func (ns *nodeSet) snapshots() map[string][]workspace.SnapshotImage {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	out := map[string][]workspace.SnapshotImage{}
	for name, n := range ns.m {
		if len(n.beat.Snapshots) > 0 && ns.s.cfg.Now().Sub(n.heard) <= ns.s.cfg.NodeTimeout {
			out[name] = n.beat.Snapshots
		}
	}
	return out
}
