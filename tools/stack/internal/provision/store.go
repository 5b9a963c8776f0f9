package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Store is the directory in which artifacts live: bin and images hold them, log the output of
// builds, stamp and lock what this package needs, tmp what is being made.
type Store struct{ Dir string }

// stamp is written after an artifact is in place, and says what it is.
type stamp struct {
	Key     string           `json:"key"`
	Name    string           `json:"name"`
	Version string           `json:"version"`
	Files   map[string]int64 `json:"files"` // size in bytes
	MadeAt  time.Time        `json:"made_at"`
	TookMS  int64            `json:"took_ms"`
}

func (s Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// Have returns the size of a stage's artifact, if this very version and recipe is there, whole, and
// still works.
func (s Store) Have(stage Stage) (size int64, ok bool) {
	if len(stage.Files) == 0 {
		return 0, false
	}
	text, err := os.ReadFile(s.path("stamp", stage.Name+".json"))
	if err != nil {
		return 0, false
	}
	var st stamp
	if json.Unmarshal(text, &st) != nil || st.Key != stage.key() {
		return 0, false
	}
	for _, file := range stage.Files {
		info, err := os.Stat(s.path(file))
		if err != nil || info.Size() != st.Files[file] {
			return 0, false
		}
		size += info.Size()
	}
	if stage.Works != nil && stage.Works(s.where(stage)) != nil {
		return 0, false
	}
	return size, true
}

// where is the path of a stage's first file, empty if it has none.
func (s Store) where(stage Stage) string {
	if len(stage.Files) == 0 {
		return ""
	}
	return s.path(stage.Files[0])
}

// Forget makes the next run make the artifact anew. What is in place stays usable until then.
func (s Store) Forget(name string) error {
	err := os.Remove(s.path("stamp", name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Lock takes the lock of an artifact, which the kernel gives back if this process dies. It waits
// for another run that holds it; waiting is called once, if so.
func (s Store) Lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(s.path("lock"), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.path("lock", name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
}

// begin returns a job with a fresh directory, and clears away what a killed run left. The caller
// holds the artifact's lock.
func (s Store) begin(stage Stage) (*Job, error) {
	dir := s.path("tmp", stage.Name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	for _, file := range append([]string{"x"}, stage.Files...) {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			return nil, err
		}
	}
	log, err := newLog(s.path("log", stage.Name+".log"))
	if err != nil {
		return nil, err
	}
	return &Job{Dir: dir, log: log}, nil
}

// commit moves what was made into place and then stamps it. Programs that run from the old files
// keep them.
func (s Store) commit(stage Stage, dir string, took time.Duration) (size int64, err error) {
	if len(stage.Files) == 0 {
		return 0, nil
	}
	st := stamp{Key: stage.key(), Name: stage.Name, Version: stage.Version, Files: map[string]int64{},
		MadeAt: time.Now().UTC().Truncate(time.Second), TookMS: took.Milliseconds()}
	for _, file := range stage.Files {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			return 0, fmt.Errorf("the build left no %s: %w", file, err)
		}
		st.Files[file] = info.Size()
		size += info.Size()
	}
	if err := s.Forget(stage.Name); err != nil {
		return 0, err
	}
	for _, file := range stage.Files {
		to := s.path(file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return 0, err
		}
		if err := os.Rename(filepath.Join(dir, file), to); err != nil {
			return 0, err
		}
	}
	return size, s.writeStamp(st)
}

func (s Store) writeStamp(st stamp) error {
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("stamp"), 0o755); err != nil {
		return err
	}
	temp := s.path("stamp", st.Name+".new")
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, s.path("stamp", st.Name+".json"))
}
