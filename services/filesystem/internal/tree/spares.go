package tree

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weftmesh/weft/schemas"
)

// keptSpares is how many disks wait for the next overlays. Most overlays are as large as the one before them, and making a
// disk is the longest part of making one.
const keptSpares = 2

// sparePause is between the last overlay that was made and the next spare disk: whoever had the overlay made has the
// machine to itself until its first command runs.
const sparePause = 200 * time.Millisecond

// spares are directories of overlays to come, each with an empty disk mounted. They are of one size: the one that was
// asked for last.
type spares struct {
	mu      sync.Mutex
	bytes   int64
	dirs    []string
	asked   time.Time // when the last overlay was made
	filling bool
	closed  bool
	stop    chan struct{} // closed with it
	work    sync.WaitGroup
}

// take gives a spare of the size, or nothing.
func (s *spares) take(bytes int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes != bytes || len(s.dirs) == 0 {
		return ""
	}
	dir := s.dirs[0]
	s.dirs = s.dirs[1:]
	return dir
}

// close ends the filling and removes what was not taken.
func (s *spares) close() {
	s.mu.Lock()
	if !s.closed {
		close(s.stop)
	}
	s.closed = true
	s.mu.Unlock()
	s.work.Wait()
	for _, dir := range s.dirs {
		remove(dir)
	}
	s.dirs = nil
}

func remove(dir string) {
	if err := removeDir(dir); err != nil {
		slog.Error("a spare disk can't be removed now; the next start does it", "dir", dir, "error", err)
	}
}

// refill makes spares of the size, behind its caller's back.
func (t *Trees) refill(bytes int64) {
	s := &t.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
	var old []string
	if s.bytes != bytes {
		old, s.dirs, s.bytes = s.dirs, nil, bytes
	}
	if s.closed || s.filling && len(old) == 0 {
		return
	}
	start := !s.filling
	s.filling = true
	s.work.Go(func() {
		for _, dir := range old {
			remove(dir)
		}
		for start && s.rest() && t.refillOne() {
		}
	})
}

// rest waits until no overlay was made for a while. It reports whether to go on.
func (s *spares) rest() bool {
	for {
		s.mu.Lock()
		left := time.Until(s.asked.Add(sparePause))
		s.mu.Unlock()
		if left <= 0 {
			return true
		}
		select {
		case <-time.After(left):
		case <-s.stop:
			return false
		}
	}
}

// refillOne makes one, and reports whether to go on.
func (t *Trees) refillOne() bool {
	s := &t.spares
	s.mu.Lock()
	bytes := s.bytes
	if s.closed || len(s.dirs) >= keptSpares {
		s.filling = false
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	dir, err := t.spare(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // overlays make their own disks, and say why they can't
		s.filling = false
		return false
	}
	if s.bytes == bytes && !s.closed {
		s.dirs = append(s.dirs, dir)
		return true
	}
	s.work.Go(func() { remove(dir) })
	return true
}

// spare makes one directory with its disk.
func (t *Trees) spare(bytes int64) (string, error) {
	dir := filepath.Join(t.data, "overlays", schemas.NewID()+waiting)
	for _, d := range []string{"", "disk"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o711); err != nil {
			return "", err
		}
	}
	if err := t.volume(context.Background(), dir, Overlay{DiskBytes: bytes}); err != nil {
		remove(dir)
		return "", err
	}
	return dir, nil
}
