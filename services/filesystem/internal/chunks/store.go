// Package chunks keeps content by its SHA-256 in a directory, compressed with zstd where that helps. What was put through a Batch
// is there after Commit has returned, whatever happens to process or machine; before it, it is only to be seen through that Batch.
// So a crash leaves chunks that nobody names, which Sweep removes, and never a name without its chunk.
//
// The chunks of a batch lie in one file, a pack, because making and syncing a file for each costs many times more than
// writing it. A pack is never changed; Sweep copies what is still needed of several into a new one. Where each chunk lies
// is kept in memory, some 100 bytes for each.
package chunks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/weftmesh/weft/services/filesystem/internal/dirs"
)

// MaxChunk bounds a chunk's content in bytes: files are cut far below it, and a manifest node of 100,000 entries
// fits.
const MaxChunk = 64 << 20

// ErrMissing says that a chunk is not there.
var ErrMissing = errors.New("chunk is missing")

// ErrDamaged says that a chunk's content is not what its name says.
var ErrDamaged = errors.New("chunk is damaged")

// Directories of a store.
const (
	packsDir = "packs"
	incoming = "incoming" // what batches write until they commit
)

// place is where a chunk lies.
type place struct {
	pack    uint64
	offset  int64
	size    uint32 // as stored
	codec   byte
	touched int64 // when a batch last relied on it, seconds since 1970; 0 if not in this process's life
}

// Store is one directory of chunks. One process writes it.
type Store struct {
	root *os.Root
	enc  *zstd.Encoder
	dec  *zstd.Decoder
	open handles

	sweep sync.Mutex // one at a time

	mu    sync.RWMutex
	index map[Hash]place
	packs map[uint64]packInfo
	next  uint64 // number of the next pack, committed or not
}

// packInfo is what is known of a committed pack.
type packInfo struct {
	size int64
	made time.Time
}

// Open opens or makes the store in the directory path and removes what batches of an earlier process left.
func Open(path string) (*Store, error) {
	for _, d := range []string{packsDir, incoming} {
		if err := dirs.MkdirDurable(filepath.Join(path, d), 0o700); err != nil {
			return nil, fmt.Errorf("chunk store: %w", err)
		}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("chunk store: %w", err)
	}
	s := &Store{root: root, index: map[Hash]place{}, packs: map[uint64]packInfo{}, next: 1}
	s.open.root = root
	if s.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err == nil {
		s.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxChunk))
	}
	if err == nil {
		err = errors.Join(root.RemoveAll(incoming), root.Mkdir(incoming, 0o700))
	}
	if err == nil {
		err = s.load()
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("chunk store: %w", err)
	}
	return s, nil
}

// load reads the table of every pack.
func (s *Store) load() error {
	entries, err := fs.ReadDir(s.root.FS(), packsDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), packSuffix), 16, 64)
		if err != nil || packName(n) != packsDir+"/"+e.Name() {
			continue // not ours
		}
		s.next = max(s.next, n+1)
		if err := s.loadPack(n); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) loadPack(n uint64) error {
	f, err := s.root.Open(packName(n))
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	entries, err := readTable(f, st.Size())
	if err != nil {
		return fmt.Errorf("%w: pack %s: %w", ErrDamaged, packName(n), err)
	}
	s.adopt(n, packInfo{st.Size(), st.ModTime()}, entries)
	return nil
}

// adopt makes a pack's chunks known. A chunk that is known already stays where it was.
func (s *Store) adopt(n uint64, info packInfo, entries []packEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packs[n] = info
	for _, e := range entries {
		if _, ok := s.index[e.hash]; !ok {
			s.index[e.hash] = place{pack: n, offset: e.offset, size: e.size, codec: e.codec}
		}
	}
}

// Close releases the directory. Chunks stay.
func (s *Store) Close() error {
	s.dec.Close()
	s.open.closeAll()
	return errors.Join(s.enc.Close(), s.root.Close())
}

// Get gives the content of a chunk after checking it against its name.
func (s *Store) Get(h Hash) ([]byte, error) {
	for {
		s.mu.RLock()
		p, ok := s.index[h]
		s.mu.RUnlock()
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrMissing, h)
		}
		raw, err := s.open.read(packName(p.pack), p.offset, p.size)
		if errors.Is(err, fs.ErrNotExist) { // moved to another pack since it was looked up, or lost
			s.mu.RLock()
			now := s.index[h]
			s.mu.RUnlock()
			if now.pack != p.pack {
				continue
			}
			return nil, fmt.Errorf("%w: %s: %w", ErrMissing, h, err)
		}
		if err != nil {
			return nil, err
		}
		return s.unpack(raw, p.codec, h)
	}
}

// Has reports whether a chunk is there. It is safe from Sweep for another grace period.
func (s *Store) Has(h Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.index[h]
	if ok {
		p.touched = time.Now().Unix()
		s.index[h] = p
	}
	return ok
}

// Len is the number of chunks, needed or not.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.index)
}
