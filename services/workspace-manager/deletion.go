package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// deletion removes the workspaces and tenants that are marked "deleting", for as long as this replica
// leads. Every step can be done again; what does not succeed now is tried again a second later.
func (s *Service) deletion(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		for _, v := range s.tenants.views() {
			for _, r := range v.workspaces.in("*") {
				if r.Value.State == workspace.Deleting {
					s.progress(ctx, "workspace "+r.ID, v.deleteWorkspace(ctx, r.ID))
				}
			}
		}
		for _, name := range s.signers.deleting() {
			s.progress(ctx, "tenant "+name, s.deleteTenant(ctx, name))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.purge:
		case <-t.C:
		}
	}
}

// errWaiting means that a deletion goes on later: something of it is still ending.
var errWaiting = errors.New("waiting for what runs to end")

func (s *Service) progress(ctx context.Context, what string, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		s.log.Info("deleted", "what", what)
	case errors.Is(err, errWaiting):
		s.log.Debug("deletion goes on later", "what", what, "err", err)
	default:
		s.log.Warn("deletion goes on later", "what", what, "err", err)
	}
}

// deleteWorkspace ends what runs in a workspace, has the other services remove theirs, purges its
// subjects, and at last its record.
func (v *view) deleteWorkspace(ctx context.Context, ws string) error {
	if err := v.endAll(ctx, ws); err != nil {
		return err
	}
	for _, p := range v.s.cfg.Purgers {
		if err := p.DeleteWorkspace(ctx, v.tenant, ws); err != nil {
			return fmt.Errorf("%s has not removed its part of workspace %s: %w", p.Name(), ws, err)
		}
	}
	if err := v.s.purgeSubjects(ctx, v.tenant, ws); err != nil {
		return err
	}
	failpoint.Hit(fpDeleteAfterPurge)
	if err := v.s.purgeCursors(ctx, v.tenant+"."+ws+".>"); err != nil {
		return err
	}
	v.dropWorkspace(ws)
	return notGone(remove(ctx, v.s, v.s.stores.workspaces, workspaceKey(v.tenant, ws)))
}

// endAll cancels every task and sandbox of a workspace; errWaiting while some have not ended.
func (v *view) endAll(ctx context.Context, ws string) error {
	left := 0
	for _, t := range v.tasks.unfinished() {
		if t.Workspace != ws {
			continue
		}
		r, err := v.s.cancel(ctx, t.Key, schemas.WorkspaceManager)
		if fault.Is(err, fault.NotFound) {
			v.forgetTask(t.Key)
			continue
		}
		if err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
		if !r.Value.State.Final() {
			left++
		}
	}
	for _, r := range v.sandboxes.inLife() {
		if r.Workspace != ws {
			continue
		}
		if err := v.s.killSandbox(ctx, r, workspace.ReasonCancelled, ""); err != nil {
			return err
		}
		if _, err := v.s.stopped(ctx, r.Key, workspace.Exit{Code: 137, Reason: "cancelled"}, nil); err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("%d tasks of workspace %s: %w", left, ws, errWaiting)
	}
	return nil
}

// dropWorkspace forgets what a workspace had.
func (v *view) dropWorkspace(ws string) {
	for _, t := range v.tasks.in(ws) {
		v.forgetTask(t)
	}
	dropAll(v.agents, ws)
	dropAll(v.templates, ws)
	dropAll(v.triggers, ws)
	dropAll(v.sandboxes, ws)
	dropAll(v.gathers, ws)
	dropAll(v.pools, ws)
}

func dropAll[T any](t *table[T], ws string) {
	for _, r := range t.in(ws) {
		t.forget(r.Key)
	}
}

// purgeSubjects removes everything on a workspace's subjects from the tenant's streams. The audit stays.
func (s *Service) purgeSubjects(ctx context.Context, tenant, ws string) error {
	for stream, plane := range map[string]schemas.Plane{"TASKS-": schemas.PlaneTask, "MSG-": schemas.PlaneMsg, "OUT-": schemas.PlaneOut, "LOG-": schemas.PlaneEvt} {
		st, err := s.js.Stream(ctx, stream+tenant)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err == nil {
			err = st.Purge(ctx, jetstream.WithPurgeSubject(schemas.Prefix+string(plane)+"."+tenant+"."+ws+".>"))
		}
		if err != nil {
			return fmt.Errorf("purge %s%s: %w", stream, tenant, err)
		}
	}
	return nil
}

func (s *Service) purgeCursors(ctx context.Context, filter string) error {
	st, err := s.js.Stream(ctx, "KV_"+provision.CursorsBucket)
	if err != nil {
		return err
	}
	return st.Purge(ctx, jetstream.WithPurgeSubject("$KV."+provision.CursorsBucket+"."+filter))
}

// deleteTenant removes all workspaces of a tenant, then its streams, and at last its entry, which until
// then says that there is something to delete. Its NATS account is removed by the operator.
func (s *Service) deleteTenant(ctx context.Context, name string) error {
	_, err := s.js.Stream(ctx, records.Stream(name))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if err == nil {
		v := s.tenants.view(ctx, name)
		if v == nil {
			return errWaiting
		}
		for _, r := range v.workspaces.in("*") {
			if err := v.deleteWorkspace(ctx, r.ID); err != nil {
				return err
			}
		}
	}
	for _, p := range s.cfg.Purgers {
		if err := p.DeleteTenant(ctx, name); err != nil {
			return fmt.Errorf("%s has not removed its part of tenant %s: %w", p.Name(), name, err)
		}
	}
	if err := s.purgeCursors(ctx, name+".>"); err != nil {
		return err
	}
	if dlq, err := s.js.Stream(ctx, provision.DLQ); err == nil {
		if err := dlq.Purge(ctx, jetstream.WithPurgeSubject(schemas.Prefix+"dlq."+name+".>")); err != nil {
			return err
		}
	}
	if err := provision.Remove(ctx, s.js, name); err != nil {
		return err
	}
	return s.signers.remove(ctx, name)
}

func notGone(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
