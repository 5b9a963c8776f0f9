// Package chunks keeps content by its SHA-256 in a directory: two levels of fan-out, one file per chunk, compressed
// with zstd where that helps. A chunk is never changed. What was put through a Batch is there after Commit has
// returned, whatever happens to process or machine; before it, it is only to be seen through that Batch. So a crash leaves
// chunks that nobody names, which Sweep removes, and never a name without its chunk.
package chunks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// MaxChunk bounds a chunk's content in bytes: files are cut far below it, and a manifest node of 100,000 entries
// fits.
const MaxChunk = 64 << 20

// ErrMissing says that a chunk is not there.
var ErrMissing = errors.New("chunk is missing")

// ErrDamaged says that a chunk's content is not what its name says.
var ErrDamaged = errors.New("chunk is damaged")

// The first byte of a chunk's file says how the rest is to be read.
const (
	codecRaw  = 0
	codecZstd = 1
)

// incoming is where batches write until they commit.
const incoming = "incoming"

// Store is one directory of chunks. One process writes it.
type Store struct {
	root *os.Root
	path string
	enc  *zstd.Encoder
	dec  *zstd.Decoder

	mu      sync.Mutex
	batches int // ever begun by this process; names their directories
}

// Open opens or makes the store in the directory path and removes what batches of an earlier process left.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(path, incoming), 0o700); err != nil {
		return nil, fmt.Errorf("chunk store: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("chunk store: %w", err)
	}
	s := &Store{root: root, path: path}
	if s.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err == nil {
		s.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxChunk))
	}
	if err == nil {
		err = s.clean()
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("chunk store: %w", err)
	}
	return s, nil
}

func (s *Store) clean() error {
	if err := s.root.RemoveAll(incoming); err != nil {
		return err
	}
	return s.root.Mkdir(incoming, 0o700)
}

// Close releases the directory. Chunks stay.
func (s *Store) Close() error {
	s.dec.Close()
	return errors.Join(s.enc.Close(), s.root.Close())
}

func name(h Hash) string {
	s := h.String()
	return s[:2] + "/" + s[2:]
}

// Get gives the content of a chunk after checking it against its name.
func (s *Store) Get(h Hash) ([]byte, error) {
	return s.read(name(h), h)
}

func (s *Store) read(file string, h Hash) ([]byte, error) {
	f, err := s.root.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, h)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() < 1 || st.Size() > MaxChunk+1 {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, h, st.Size())
	}
	raw := make([]byte, st.Size())
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, err
	}
	content := raw[1:]
	if raw[0] == codecZstd {
		if content, err = s.dec.DecodeAll(content, nil); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, h, err)
		}
	}
	if raw[0] > codecZstd || Sum(content) != h {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, h)
	}
	return content, nil
}

// Has reports whether a chunk is there. It is safe from Sweep for another grace period.
func (s *Store) Has(h Hash) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touch(h)
}

// touch makes an existing chunk as young as a new one, so that a batch that relies on it is not overtaken by Sweep,
// which looks at the time under the same lock.
func (s *Store) touch(h Hash) (bool, error) {
	now := time.Now()
	err := s.root.Chtimes(name(h), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// pack is the file that holds content.
func (s *Store) pack(content []byte) []byte {
	if len(content) >= 128 {
		out := s.enc.EncodeAll(content, append(make([]byte, 0, len(content)/2+64), codecZstd))
		if len(out) < len(content)-len(content)/16 {
			return out
		}
	}
	return append(append(make([]byte, 0, len(content)+1), codecRaw), content...)
}

// Swept says what Sweep did.
type Swept struct {
	Kept, Removed int
	Bytes         int64 // freed, as stored
}

// Sweep removes every chunk that live does not want and that is older than grace. A chunk that a batch has just relied on counts as
// new; so grace must be longer than any operation between its first chunk and its record.
func (s *Store) Sweep(live func(Hash) bool, grace time.Duration, now time.Time) (Swept, error) {
	var out Swept
	err := fs.WalkDir(s.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path == incoming {
				return fs.SkipDir
			}
			return nil
		}
		h, err := ParseHash(filepath.Dir(path) + filepath.Base(path))
		if err != nil {
			return nil // not ours
		}
		if live(h) {
			out.Kept++
			return nil
		}
		n, err := s.sweepOne(path, now.Add(-grace))
		if n > 0 {
			out.Removed++
			out.Bytes += n
		} else {
			out.Kept++
		}
		return err
	})
	return out, err
}

func (s *Store) sweepOne(path string, before time.Time) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil || st.ModTime().After(before) {
		return 0, err
	}
	return st.Size(), s.root.Remove(path)
}
