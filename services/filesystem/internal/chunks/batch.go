package chunks

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// Batch collects chunks that become durable together. It may be used by several goroutines; exactly one
// of Commit and Abort ends it, and Abort after Commit does nothing.
type Batch struct {
	s *Store

	mu     sync.Mutex
	ended  bool
	packs  []*staged
	where  map[Hash]stagedPlace
	relied map[Hash]bool // on chunks that were there already
	bytes  int64
}

// staged is a pack that is being written.
type staged struct {
	n    uint64
	name string
	w    *packWriter
}

type stagedPlace struct {
	pack *staged
	packEntry
}

// Batch begins one.
func (s *Store) Batch() *Batch {
	return &Batch{s: s, where: map[Hash]stagedPlace{}, relied: map[Hash]bool{}}
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
	if _, ok := b.where[h]; ok || b.relied[h] {
		return h, nil
	}
	if b.s.Has(h) {
		b.relied[h] = true
		return h, nil
	}
	p, err := b.pack()
	if err != nil {
		return h, fmt.Errorf("chunk store: %w", err)
	}
	stored, codec := b.s.pack(content)
	e, err := p.w.add(h, stored, codec)
	if err != nil {
		return h, fmt.Errorf("chunk store: %w", err)
	}
	b.where[h] = stagedPlace{p, e}
	b.bytes += int64(len(stored))
	return h, nil
}

// pack gives the pack to write to.
func (b *Batch) pack() (*staged, error) {
	if n := len(b.packs); n > 0 && b.packs[n-1].w.size < maxPack {
		return b.packs[n-1], nil
	}
	p := &staged{n: b.s.number()}
	p.name = incoming + "/" + strconv.FormatUint(p.n, 16)
	f, err := b.s.root.OpenFile(p.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	p.w = newPackWriter(f)
	b.packs = append(b.packs, p)
	return p, nil
}

func (s *Store) number() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	s.next++
	return n
}

// Get gives the content of a chunk of this batch or of the store.
func (b *Batch) Get(h Hash) ([]byte, error) {
	raw, codec, err := b.staged(h)
	if raw == nil && err == nil {
		return b.s.Get(h)
	}
	if err != nil {
		return nil, err
	}
	return b.s.unpack(raw, codec, h)
}

func (b *Batch) staged(h Hash) ([]byte, byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.where[h]
	if !ok {
		return nil, 0, nil
	}
	if err := p.pack.w.w.Flush(); err != nil {
		return nil, 0, err
	}
	raw := make([]byte, p.size)
	_, err := p.pack.w.f.ReadAt(raw, p.offset)
	return raw, p.codec, err
}

// Commit makes everything durable: content first, then the names of the packs. It fails, and nothing is kept, if a
// chunk that the batch relied on was swept since, which takes a batch older than the grace period.
func (b *Batch) Commit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return errors.New("batch has ended")
	}
	b.ended = true
	for h := range b.relied {
		if !b.s.Has(h) {
			b.drop()
			return fmt.Errorf("%w since the batch began: %s", ErrMissing, h)
		}
	}
	if err := b.commit(); err != nil {
		b.drop()
		return fmt.Errorf("chunk store: %w", err)
	}
	clear(b.where) // from here on they are read like all others
	b.packs = nil
	return nil
}

func (b *Batch) commit() error {
	for _, p := range b.packs {
		if err := errors.Join(p.w.finish(), p.w.f.Close()); err != nil {
			return err
		}
	}
	for _, p := range b.packs {
		if err := b.s.root.Rename(p.name, packName(p.n)); err != nil {
			return err
		}
	}
	if len(b.packs) == 0 {
		return nil
	}
	if err := b.s.syncPacks(); err != nil {
		return err
	}
	for _, p := range b.packs {
		b.s.adopt(p.n, packInfo{p.w.size, time.Now()}, p.w.entries)
	}
	return nil
}

// syncPacks makes the names of packs durable.
func (s *Store) syncPacks() error {
	d, err := s.root.Open(packsDir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Abort forgets what was not committed.
func (b *Batch) Abort() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	b.drop()
}

// drop removes what was staged. What it can't remove goes with the next Open, or with Sweep.
func (b *Batch) drop() {
	for _, p := range b.packs {
		_ = p.w.f.Close()
		_ = b.s.root.Remove(p.name)
	}
	b.packs = nil
}

// Bytes is what the batch has written so far, as stored.
func (b *Batch) Bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}
