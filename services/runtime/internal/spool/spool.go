// Package spool keeps the output of attempts on the node's disk: the truth about what a command said,
// until it is archived. Live publishing reads from here and may fall behind or fail; nothing is lost by it.
//
// An attempt's spool is a directory with one append-only file per stream and two small files of
// positions. A byte's offset in its file is its offset for every reader.
//
// # Killed in the middle
//
// Output may be changed on its way in (secret values are scrubbed, which may hold back a few bytes), so
// the spool also remembers up to which offset of the source it has taken everything in. Both are
// written as one after the bytes themselves: bytes that were appended and not yet counted are cut off
// when the spool is opened again, and come again from the source, which forgets nothing that was not
// counted. Readers see counted bytes only.
package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Stream is one of the outputs of an attempt.
type Stream int

// The streams of an attempt. Log is what the node itself has to say about it.
const (
	Stdout Stream = iota
	Stderr
	Log
	streams
)

// String is the stream's name on the wire and on disk.
func (s Stream) String() string { return [...]string{"stdout", "stderr", "log"}[s] }

// All lists the streams.
func All() []Stream { return []Stream{Stdout, Stderr, Log} }

// Position is how far a stream has come.
type Position struct {
	Source uint64 // bytes of the source that were taken in
	Size   int64  // bytes in the spool
	Ended  bool   // nothing follows
}

// Spool is one attempt's output. Appends to one stream come from one goroutine; everything else may
// be called from any.
type Spool struct {
	dir   string
	limit int64 // of stdout and stderr together

	mu        sync.Mutex
	files     [streams]*os.File
	positions *os.File
	published *os.File
	at        [streams]Position
	sent      [streams]int64
	truncated bool
	changed   chan struct{} // closed at the next change
	closed    bool
}

// positionsSize: for each stream source, size and ended, then truncated, 8 bytes each.
const positionsSize = (3*int(streams) + 1) * 8

// Open opens or makes the spool in dir. limit bounds stdout and stderr together, in bytes; what goes
// beyond it is dropped, and Truncated tells so.
func Open(dir string, limit int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Spool{dir: dir, limit: limit, changed: make(chan struct{})}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	}
	var err error
	if s.positions, err = open("positions"); err == nil {
		s.published, err = open("published")
	}
	for i := 0; err == nil && i < int(streams); i++ {
		s.files[i], err = open(Stream(i).String())
	}
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), s.Close())
	}
	return s, nil
}

// load reads the positions and cuts off what was not counted.
func (s *Spool) load() error {
	b := make([]byte, positionsSize)
	if n, err := s.positions.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if n < positionsSize {
		clear(b) // nothing was counted yet
	}
	word := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	for i := range s.at {
		s.at[i] = Position{Source: word(3 * i), Size: int64(word(3*i + 1)), Ended: word(3*i+2) == 1}
		if err := s.files[i].Truncate(s.at[i].Size); err != nil {
			return err
		}
	}
	s.truncated = word(3*int(streams)) == 1
	p := make([]byte, 8*int(streams))
	if n, err := s.published.ReadAt(p, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if n == len(p) {
		for i := range s.sent {
			s.sent[i] = min(int64(binary.BigEndian.Uint64(p[8*i:])), s.at[i].Size)
		}
	}
	return nil
}

// count writes the positions, in one write.
func (s *Spool) count() error {
	b := make([]byte, 0, positionsSize)
	flag := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	for _, p := range s.at {
		b = binary.BigEndian.AppendUint64(b, p.Source)
		b = binary.BigEndian.AppendUint64(b, uint64(p.Size))
		b = binary.BigEndian.AppendUint64(b, flag(p.Ended))
	}
	b = binary.BigEndian.AppendUint64(b, flag(s.truncated))
	if _, err := s.positions.WriteAt(b, 0); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Append adds data to a stream and counts the source up to source. data may be empty and may be longer
// or shorter than what the source gave.
func (s *Spool) Append(st Stream, data []byte, source uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	if st != Log {
		room := max(0, s.limit-s.at[Stdout].Size-s.at[Stderr].Size)
		if int64(len(data)) > room {
			data, s.truncated = data[:room], true
		}
	}
	p := &s.at[st]
	if _, err := s.files[st].WriteAt(data, p.Size); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	p.Size += int64(len(data))
	p.Source = max(p.Source, source)
	return s.count()
}

// End says that nothing follows on a stream.
func (s *Spool) End(st Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	if s.at[st].Ended {
		return nil
	}
	s.at[st].Ended = true
	return s.count()
}

// Position of a stream.
func (s *Spool) Position(st Stream) Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[st]
}

// Truncated reports whether output was dropped because it went over the limit.
func (s *Spool) Truncated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.truncated
}

// Published gives up to which offset a stream was published, as told last.
func (s *Spool) Published(st Stream) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[st]
}

// SetPublished remembers that. It is not flushed: after a crash a few bytes may be published again,
// at their same offsets.
func (s *Spool) SetPublished(st Stream, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	s.sent[st] = offset
	b := make([]byte, 0, 8*int(streams))
	for _, o := range s.sent {
		b = binary.BigEndian.AppendUint64(b, uint64(o))
	}
	if _, err := s.published.WriteAt(b, 0); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// Changed gives a channel that is closed when something is appended or ended after this call.
func (s *Spool) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Read fills b with counted bytes of a stream from offset on, as many as there are.
func (s *Spool) Read(st Stream, offset int64, b []byte) (int, error) {
	s.mu.Lock()
	size, f := s.at[st].Size, s.files[st]
	s.mu.Unlock()
	if offset >= size || offset < 0 {
		return 0, nil
	}
	n, err := f.ReadAt(b[:min(int64(len(b)), size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("spool: %w", err)
	}
	return n, nil
}

// Path of a stream's file.
func (s *Spool) Path(st Stream) string { return filepath.Join(s.dir, st.String()) }

// Sync flushes everything to disk.
func (s *Spool) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	errs := make([]error, 0, int(streams)+1)
	for i, f := range s.files {
		if s.at[i].Size > 0 {
			errs = append(errs, f.Sync())
		}
	}
	return errors.Join(append(errs, s.positions.Sync())...)
}

// Close closes the files; what was appended stays.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.changed)
	var errs []error
	for _, f := range append(s.files[:], s.positions, s.published) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
