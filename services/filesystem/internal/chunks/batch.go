package chunks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// syncAll is the number of new files from which one sync of the whole filesystem is cheaper than one for each
// file (BenchmarkCommit: from about 20). It is higher than that because the one sync also waits for what others
// have written to the same filesystem.
const syncAll = 64

// syncing is how many files are synced at once; the kernel joins their journal commits.
const syncing = 8

// Batch collects chunks that become durable together. It may be used by several goroutines; exactly one
// of Commit and Abort ends it, and Abort after Commit does nothing.
type Batch struct {
	s   *Store
	dir string

	mu     sync.Mutex
	made   bool // dir exists
	ended  bool
	staged map[Hash]bool // written by this batch, not yet under their names
	bytes  int64
}

// Batch begins one.
func (s *Store) Batch() *Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	return &Batch{s: s, dir: incoming + "/" + strconv.Itoa(s.batches), staged: map[Hash]bool{}}
}

// Put adds content and gives its name. Content that is there already costs a lookup.
func (b *Batch) Put(content []byte) (Hash, error) {
	h := Sum(content)
	if len(content) > MaxChunk {
		return h, fmt.Errorf("chunk of %d bytes is larger than %d", len(content), MaxChunk)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return h, errors.New("batch has ended")
	}
	if b.staged[h] {
		return h, nil
	}
	if ok, err := b.s.Has(h); ok || err != nil {
		return h, err
	}
	if !b.made {
		if err := b.s.root.Mkdir(b.dir, 0o700); err != nil {
			return h, fmt.Errorf("chunk store: %w", err)
		}
		b.made = true
	}
	packed := b.s.pack(content)
	if err := b.s.root.WriteFile(b.dir+"/"+h.String(), packed, 0o400); err != nil {
		return h, fmt.Errorf("chunk store: %w", err)
	}
	b.staged[h] = true
	b.bytes += int64(len(packed))
	return h, nil
}

// Get gives the content of a chunk of this batch or of the store.
func (b *Batch) Get(h Hash) ([]byte, error) {
	b.mu.Lock()
	staged := b.staged[h]
	b.mu.Unlock()
	if staged {
		return b.s.read(b.dir+"/"+h.String(), h)
	}
	return b.s.Get(h)
}

// Commit makes everything durable: content first, then names, then the directories that hold the names.
func (b *Batch) Commit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return errors.New("batch has ended")
	}
	b.ended = true
	if !b.made {
		return nil
	}
	if err := b.commit(); err != nil {
		return fmt.Errorf("chunk store: %w", errors.Join(err, b.s.root.RemoveAll(b.dir)))
	}
	clear(b.staged) // from here on they are read like all others
	return b.s.root.Remove(b.dir)
}

func (b *Batch) commit() error {
	all := len(b.staged) >= syncAll
	if all {
		if err := b.s.syncfs(); err != nil {
			return err
		}
	} else {
		files := make([]string, 0, len(b.staged))
		for h := range b.staged {
			files = append(files, b.dir+"/"+h.String())
		}
		if err := b.s.syncEach(files); err != nil {
			return err
		}
	}
	touched := map[string]bool{}
	for h := range b.staged {
		fan := h.String()[:2]
		if !touched[fan] {
			err := b.s.root.Mkdir(fan, 0o700)
			switch {
			case err == nil:
				touched["."] = true
			case !errors.Is(err, fs.ErrExist):
				return err
			}
			touched[fan] = true
		}
		// Another batch may have brought the same content; then this replaces a file by its equal.
		if err := b.s.root.Rename(b.dir+"/"+h.String(), name(h)); err != nil {
			return err
		}
	}
	if all {
		return b.s.syncfs()
	}
	return b.s.syncEach(slices.Collect(maps.Keys(touched)))
}

// Abort forgets what was not committed.
func (b *Batch) Abort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	if b.made {
		_ = b.s.root.RemoveAll(b.dir) // what stays is removed by the next Open
	}
}

// Bytes is what the batch has written so far, as stored.
func (b *Batch) Bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

func (s *Store) sync(path string) error {
	f, err := s.root.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *Store) syncEach(paths []string) error {
	var g errgroup.Group
	g.SetLimit(syncing)
	for _, p := range paths {
		g.Go(func() error { return s.sync(p) })
	}
	return g.Wait()
}

func (s *Store) syncfs() error {
	f, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	return nil
}
