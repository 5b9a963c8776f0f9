package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	taskapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
)

// What a private daemon still holds of containers whose record is gone: tasks, bundles, leases. Of a daemon that is
// shared with others nobody can tell whose they are; there they are left to it.

// Tasks lists the containers of which a private daemon runs a task, whether it has their record or not.
func (e *Engine) Tasks(ctx context.Context) ([]string, error) {
	if !e.Private() {
		return nil, nil
	}
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	reply, err := e.client.TaskService().List(ctx, &taskapi.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	ids := make([]string, 0, len(reply.Tasks))
	for _, t := range reply.Tasks {
		ids = append(ids, t.ID)
	}
	return ids, nil
}

// Bundles lists the containers of which a private daemon has a task's directory.
func (e *Engine) Bundles() ([]string, error) {
	if !e.Private() {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(e.cfg.RunDir, "state", tasks, Namespace))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ids := make([]string, 0, len(entries))
	for _, d := range entries {
		ids = append(ids, strings.TrimPrefix(d.Name(), hidden))
	}
	return ids, err
}

// DeleteStray removes the task and the bundle of a container without a record. containerd deletes a task only
// with its container's record at hand, so it gets one for that time.
func (e *Engine) DeleteStray(ctx context.Context, id string) error {
	if !e.Private() {
		return nil
	}
	create, cancel := call(ctx, callTimeout)
	defer cancel()
	_, err := e.client.NewContainer(create, id, client.WithRuntime(Runc, nil))
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("container %s, for the deletion of its task: %w", id, err)
	}
	return errors.Join(e.Delete(ctx, id), e.deleteBundle(id))
}

// DropLeases ends the leases that were taken before, and gives their names. Each kept something from a private
// daemon's garbage collection until a record referred to it; whoever took one before this process was
// started can't be waiting for that any more.
func (e *Engine) DropLeases(ctx context.Context, before time.Time) ([]string, error) {
	if !e.Private() {
		return nil, nil
	}
	ctx, cancel := call(ctx, callTimeout)
	defer cancel()
	manager := e.client.LeasesService()
	all, err := manager.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var dropped []string
	var errs []error
	for _, l := range all {
		if !l.CreatedAt.Before(before) {
			continue
		}
		if err := manager.Delete(ctx, leases.Lease{ID: l.ID}); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("end lease %s: %w", l.ID, err))
			continue
		}
		dropped = append(dropped, l.ID)
	}
	return dropped, errors.Join(errs...)
}
