package runtime

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// replayed is how much of a stream one answer carries: it is base64 in JSON, and has to fit into a body.
const replayed = 512 << 10

// SpooledOutput gives what the node has of an attempt's output from the offsets on, and at last a chunk with End
// set. It does not wait for more. Spools are kept for a day after their attempt.
func (s *Service) SpooledOutput(ctx context.Context, req workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
	if err := schemas.CheckID("task", req.Task); err != nil || req.Attempt < 1 {
		return fault.New(fault.Invalid, "an output request names a task and an attempt")
	}
	dir := s.spoolDir(req.Task, req.Attempt)
	if _, err := os.Stat(filepath.Join(dir, "positions")); err != nil {
		return fault.New(fault.NotFound, "this node has no output of attempt %d of task %s", req.Attempt, req.Task)
	}
	for _, name := range []string{"stdout", "stderr", "log"} {
		if err := sendStream(ctx, filepath.Join(dir, name), name, req, send); err != nil {
			return err
		}
	}
	return send(workspace.OutputChunk{Attempt: req.Attempt, End: true})
}

// sendStream sends one file. Bytes at its end that are not counted yet are the output's as well: they
// were appended in order, and only come again after a crash, the same.
func sendStream(ctx context.Context, path, name string, req workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, replayed)
	for at := max(0, req.Offsets[name]); ctx.Err() == nil; {
		n, err := f.ReadAt(b, at)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if err := send(workspace.OutputChunk{Stream: name, Offset: at, Attempt: req.Attempt, Data: b[:n]}); err != nil {
			return err
		}
		at += int64(n)
	}
	return ctx.Err()
}

// sweepSpools removes the spools of attempts that ended long ago.
func (s *Service) sweepSpools() {
	tasks, err := os.ReadDir(s.cfg.SpoolDir())
	if err != nil {
		return
	}
	for _, task := range tasks {
		dir := filepath.Join(s.cfg.SpoolDir(), task.Name())
		attempts, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, a := range attempts {
			s.sweepSpool(task.Name(), a.Name())
		}
		_ = os.Remove(dir) // once it is empty
	}
}

func (s *Service) sweepSpool(task, attempt string) {
	dir := filepath.Join(s.cfg.SpoolDir(), task, attempt)
	n, err := strconv.Atoi(attempt)
	st, serr := os.Stat(filepath.Join(dir, "positions"))
	if err != nil || serr != nil || s.cfg.Clock().Sub(st.ModTime()) < s.cfg.timing.keepSpool {
		return
	}
	for _, h := range s.held() {
		if h.item.Task == task && h.item.Attempt == n {
			return
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		s.log.Warn("an old spool can't be removed", "task", task, "attempt", attempt, "error", err)
	}
}
