package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// forkDir is where the layers of forks lie while the forks are made.
const forkDir = "forks"

// parent is what a fork takes from the sandbox that it is made of.
type parent struct {
	id    string
	layer string // a copy of its writable root
	first uint32 // of its host ids
	only  bool   // there is one fork, which may take the layer instead of copying it
}

// SandboxFork makes sandboxes with the files that another one on this node has now, and returns when all can be used. Where one
// can't be made, none is. The source stands still while its files are copied, and is not changed. run is as for SandboxCreate.
func (s *Service) SandboxFork(ctx, run context.Context, req runtime.SandboxFork) error {
	if n := len(req.Sandboxes); n < 1 || n > workspace.MaxForks {
		return fault.New(fault.Invalid, "a fork makes 1 to %d sandboxes, not %d", workspace.MaxForks, n)
	}
	s.mu.Lock()
	source := s.serving[req.Source]
	s.mu.Unlock()
	if source == nil {
		return notHere(req.Source)
	}
	if free := s.free(); free < len(req.Sandboxes) {
		return fault.New(fault.Exhausted, "node %s, which has the sandbox's files, has room for %d more sandboxes, not for %d", s.cfg.Node, max(free, 0), len(req.Sandboxes))
	}
	for _, b := range req.Sandboxes {
		if b.Tenant != source.e.Sandbox.Tenant || b.Workspace != source.e.Sandbox.Workspace {
			return fault.New(fault.Denied, "sandbox %s is of another workspace than its fork", req.Source)
		}
	}
	p := &parent{id: req.Source, layer: filepath.Join(s.cfg.DataDir, forkDir, s.cfg.NewID()+".img"), first: source.box.HostRange(), only: len(req.Sandboxes) == 1}
	defer os.Remove(p.layer)
	if err := source.do(ctx, func(ctx context.Context) error { return source.copyTo(ctx, p, req.Sandboxes) }); err != nil {
		s.discardFiles(ctx, req.Sandboxes)
		return err
	}
	return s.fork(ctx, run, p, req.Sandboxes)
}

// clearForks removes what an earlier process had not finished.
func (s *Service) clearForks() error {
	dir := filepath.Join(s.cfg.DataDir, forkDir)
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// copyTo copies the source's files: the disk of its root once, and what it changed of the workspace's files for each fork.
func (i *interactive) copyTo(ctx context.Context, p *parent, forks []workspace.Sandbox) error {
	return i.h.hush(ctx, func() error {
		var wg sync.WaitGroup
		errs := make([]error, len(forks)+1)
		wg.Go(func() { errs[len(forks)] = i.box.CopyLayer(p.layer) })
		if i.e.Sandbox.Run.Files != filesNone {
			for n, b := range forks {
				wg.Go(func() {
					_, errs[n] = i.s.cfg.Files.Prepare(ctx, prepareOf(i.s.forked(b, nil, p).place()))
				})
			}
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// hush does something while nothing in the sandbox runs, whoever thaws or freezes it meanwhile. It locks nobody out: other
// claims are looked after.
func (h *hold) hush(ctx context.Context, do func() error) error {
	h.mu.Lock()
	h.hushed = true
	err := h.box.Pause(ctx)
	h.mu.Unlock()
	if err == nil {
		err = do()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hushed = false
	if !h.frozen && !h.paused {
		err = errors.Join(err, h.box.Resume(context.WithoutCancel(ctx)))
	}
	return err
}

// forked is a sandbox that begins with another one's files. h may be nil where it is only to be described.
func (s *Service) forked(b workspace.Sandbox, h *hold, p *parent) *interactive {
	return &interactive{s: s, h: h, e: boxEntry{Sandbox: b}, from: p}
}

// fork makes the sandboxes at once. What was made is thrown away where one could not be: its files are nobody's.
func (s *Service) fork(ctx, run context.Context, p *parent, forks []workspace.Sandbox) error {
	var wg sync.WaitGroup
	errs := make([]error, len(forks))
	for n, b := range forks {
		wg.Go(func() { errs[n] = s.openBox(ctx, run, b, p) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	for n, b := range forks {
		if errs[n] == nil {
			wg.Go(func() { s.discard(b.ID) })
		}
	}
	wg.Wait()
	s.discardFiles(ctx, forks) // also of those that got no further
	for _, err := range errs {
		if err != nil {
			return err // one of them is enough for a sentence
		}
	}
	return err
}

// discardFiles throws away the views of the workspace that were prepared. Those that are gone already stay so.
func (s *Service) discardFiles(ctx context.Context, forks []workspace.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.timing.ask)
	defer cancel()
	for _, b := range forks {
		if b.Run.Files == filesNone {
			continue
		}
		err := s.cfg.Files.Discard(ctx, filesystem.Discard{Tenant: b.Tenant, Workspace: b.Workspace, Owner: b.ID, Attempt: b.Generation, Sandbox: b.ID})
		if err != nil && !fault.Is(err, fault.NotFound) {
			s.log.Warn("the files of a fork that was not made are left; the next sweep removes them", "sandbox", b.ID, "error", err)
		}
	}
}

// discard ends a sandbox that was just made, and throws away what it has written.
func (s *Service) discard(id string) {
	s.mu.Lock()
	i := s.serving[id]
	s.mu.Unlock()
	if i == nil {
		return
	}
	select {
	case i.kill <- death{reason: reasonCancelled, discard: true}:
	default:
	}
	<-i.done
}
