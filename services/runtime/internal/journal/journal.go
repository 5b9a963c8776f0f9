// Package journal keeps one small record per attempt on disk, so that a node that is killed at any
// step knows afterwards how far each attempt had come.
//
// A record is one JSON file that is replaced as a whole: written beside, flushed to disk, renamed, and
// the rename flushed. So whoever reads it finds the old or the new record, never a part. A Note leaves
// the flushing out: it survives the end of the process, which is what most steps need, and not that of
// the machine, after which no sandbox is left to go on with either. The first note of a record is written where it stays,
// which costs a disk half as much: one that was cut off can't be read, and is as good as none.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftmesh/weft/schemas"
)

const suffix = ".json"

// Journal is a directory of records of one type, by identifier.
type Journal[T any] struct{ dir string }

// Open makes the directory if it is missing.
func Open[T any](dir string) (*Journal[T], error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Journal[T]{dir}, nil
}

func (j *Journal[T]) path(id string) string { return filepath.Join(j.dir, id+suffix) }

// Write replaces the record of id. When it returns, the record survives the end of this process and
// of the machine.
func (j *Journal[T]) Write(id string, v T) error {
	if err := j.put(id, v, true); err != nil {
		return err
	}
	return j.sync()
}

// Note replaces the record of id. When it returns, the record survives the end of this process.
func (j *Journal[T]) Note(id string, v T) error { return j.put(id, v, false) }

func (j *Journal[T]) put(id string, v T, flush bool) error {
	if err := schemas.CheckID("journal", id); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !flush {
		if done, err := j.first(id, b); done {
			return err
		}
	}
	tmp := filepath.Join(j.dir, "."+id)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(b)
	if flush {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := os.Rename(tmp, j.path(id)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// first writes a record that is not there yet. done: it was not.
func (j *Journal[T]) first(id string, b []byte) (done bool, err error) {
	f, err := os.OpenFile(j.path(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return true, fmt.Errorf("journal: %w", errors.Join(err, os.Remove(j.path(id))))
	}
	return true, nil
}

// sync flushes the directory, and so the renames in it.
func (j *Journal[T]) sync() error {
	d, err := os.Open(j.dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Remove deletes the record of id; one that is not there is no error.
func (j *Journal[T]) Remove(id string) error {
	if err := os.Remove(j.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// All reads every record. One that can't be read is given in bad with its error: whoever wrote it
// was not us, or the disk is failing; it stands in the way of nothing.
func (j *Journal[T]) All() (all map[string]T, bad map[string]error, err error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	all, bad = map[string]T{}, map[string]error{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || schemas.CheckID("journal", id) != nil {
			continue
		}
		b, err := os.ReadFile(j.path(id))
		var v T
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err != nil {
			bad[id] = err
			continue
		}
		all[id] = v
	}
	return all, bad, nil
}
