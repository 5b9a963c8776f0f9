// Package lifecycle starts a program's parts in order, runs them, and stops them in reverse order with a
// hard deadline.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Part is one thing that starts, perhaps runs, and stops. Each function may be nil.
type Part struct {
	Name string
	// Start returns when the part is ready for those that start after it.
	Start func(ctx context.Context) error
	// Run works until ctx ends. Its returning sooner, with or without an error, ends the program.
	Run func(ctx context.Context) error
	// Stop undoes Start. Run has returned before it is called.
	Stop func()
}

// StopWithin is how long a part's Run may take to return once it was told to.
const StopWithin = 15 * time.Second

// Run starts the parts, waits until ctx ends or one of them gives up, and stops them all. It returns why
// it ended: nil when ctx ended and everything stopped in time.
func Run(ctx context.Context, log *slog.Logger, ready func(), parts ...Part) error {
	r := &runner{log: log, failed: make(chan error, len(parts))}
	var err error
	for _, p := range parts {
		if err = r.start(ctx, p); err != nil {
			break
		}
	}
	if err == nil {
		ready()
		select {
		case <-ctx.Done():
		case err = <-r.failed:
		}
	}
	return errors.Join(err, r.stop())
}

type running struct {
	Part
	cancel context.CancelFunc
	done   chan struct{}
}

type runner struct {
	log    *slog.Logger
	up     []*running
	failed chan error
	wg     sync.WaitGroup
}

func (r *runner) start(ctx context.Context, p Part) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	began := time.Now()
	if p.Start != nil {
		if err := p.Start(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	u := &running{Part: p, done: make(chan struct{})}
	// The part's own context ends when it is its turn to stop, not with ctx: those behind it still need it.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.cancel = cancel
	r.up = append(r.up, u)
	if p.Run == nil {
		close(u.done)
	} else {
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			defer close(u.done)
			err := p.Run(run)
			if run.Err() == nil {
				if err == nil {
					err = errors.New("it ended by itself")
				}
				r.failed <- fmt.Errorf("%s: %w", p.Name, err)
			}
		}()
	}
	r.log.Debug("started", "part", p.Name, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (r *runner) stop() error {
	var errs []error
	for i := len(r.up) - 1; i >= 0; i-- {
		u := r.up[i]
		u.cancel()
		t := time.NewTimer(StopWithin)
		select {
		case <-u.done:
			t.Stop()
		case <-t.C:
			errs = append(errs, fmt.Errorf("%s did not stop within %s", u.Name, StopWithin))
			continue // its Stop would pull the ground from under it
		}
		if u.Stop != nil {
			u.Stop()
		}
		r.log.Debug("stopped", "part", u.Name)
	}
	return errors.Join(errs...)
}
