package records

import (
	"context"
	"sync"
	"time"
)

// sharedTimeout bounds a read that several wait for, whose own deadlines differ.
const sharedTimeout = 10 * time.Second

// shared lets those who want to read the same subject at the same time do with few reads. Nobody is given what was read
// before they asked: who comes while a read is under way waits for the next, which serves all who came meanwhile.
type shared struct {
	mu   sync.Mutex
	busy map[string]*reading // by subject
}

// reading is what goes on about a subject: a read, and the next one if somebody waits for it.
type reading struct{ next *flight }

type flight struct {
	ctx  context.Context // of the first who wanted it, without its end
	read func(context.Context) (*message, error)
	done chan struct{}
	m    *message // nobody changes it
	err  error
}

// do gives what read reads of subject, from a moment after the call.
func (s *shared) do(ctx context.Context, subject string, read func(context.Context) (*message, error)) (*message, error) {
	s.mu.Lock()
	if s.busy == nil {
		s.busy = map[string]*reading{}
	}
	r := s.busy[subject]
	if r == nil {
		s.busy[subject] = &reading{}
		s.mu.Unlock()
		defer s.goOn(subject)
		return read(ctx)
	}
	if r.next == nil {
		r.next = &flight{ctx: context.WithoutCancel(ctx), read: read, done: make(chan struct{})}
	}
	f := r.next
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.m, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// goOn begins the next read of subject, if somebody waits for it.
func (s *shared) goOn(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.busy[subject].next
	if f == nil {
		delete(s.busy, subject)
		return
	}
	s.busy[subject].next = nil
	go func() {
		defer s.goOn(subject)
		ctx, cancel := context.WithTimeout(f.ctx, sharedTimeout)
		defer cancel()
		f.m, f.err = f.read(ctx)
		close(f.done)
	}()
}
