package chunks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// A pack is its chunks as stored, one after the other, then a table of them, then a fixed tail: the number of entries, a
// checksum of the table, and a mark.
const (
	packSuffix = ".pack"
	packMark   = 0x57_45_46_54_50_41_43_31 // "WEFTPAC1"
	entrySize  = 32 + 8 + 4 + 1
	tailSize   = 4 + 4 + 8
	maxEntries = 1 << 24
)

// maxPack is the size in bytes from which a batch begins another pack.
const maxPack = 256 << 20

// The ways in which a chunk is stored.
const (
	codecRaw  = 0
	codecZstd = 1
)

type packEntry struct {
	hash   Hash
	offset int64
	size   uint32
	codec  byte
}

func packName(n uint64) string { return fmt.Sprintf("%s/%016x%s", packsDir, n, packSuffix) }

// readTable reads and checks a pack's table.
func readTable(r io.ReaderAt, size int64) ([]packEntry, error) {
	if size < tailSize {
		return nil, errors.New("too short")
	}
	var tail [tailSize]byte
	if _, err := r.ReadAt(tail[:], size-tailSize); err != nil {
		return nil, err
	}
	count := int64(binary.LittleEndian.Uint32(tail[:]))
	if binary.LittleEndian.Uint64(tail[8:]) != packMark || count > maxEntries || count*entrySize > size-tailSize {
		return nil, errors.New("no table at its end")
	}
	table := make([]byte, count*entrySize)
	start := size - tailSize - int64(len(table))
	if _, err := r.ReadAt(table, start); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(table) != binary.LittleEndian.Uint32(tail[4:]) {
		return nil, errors.New("its table is damaged")
	}
	out := make([]packEntry, count)
	for i := range out {
		b := table[i*entrySize:]
		e := &out[i]
		copy(e.hash[:], b)
		e.offset, e.size, e.codec = int64(binary.LittleEndian.Uint64(b[32:])), binary.LittleEndian.Uint32(b[40:]), b[44]
		if e.offset < 0 || e.offset+int64(e.size) > start || e.codec > codecZstd {
			return nil, errors.New("its table is damaged")
		}
	}
	return out, nil
}

// packWriter writes one pack.
type packWriter struct {
	f       *os.File
	w       *bufio.Writer
	size    int64
	entries []packEntry
}

func newPackWriter(f *os.File) *packWriter {
	return &packWriter{f: f, w: bufio.NewWriterSize(f, 256<<10)}
}

func (p *packWriter) add(h Hash, stored []byte, codec byte) (packEntry, error) {
	e := packEntry{hash: h, offset: p.size, size: uint32(len(stored)), codec: codec}
	if _, err := p.w.Write(stored); err != nil {
		return e, err
	}
	p.size += int64(len(stored))
	p.entries = append(p.entries, e)
	return e, nil
}

// finish writes the table and waits until the disk has everything.
func (p *packWriter) finish() error {
	table := make([]byte, 0, len(p.entries)*entrySize+tailSize)
	for _, e := range p.entries {
		table = append(table, e.hash[:]...)
		table = binary.LittleEndian.AppendUint64(table, uint64(e.offset))
		table = binary.LittleEndian.AppendUint32(table, e.size)
		table = append(table, e.codec)
	}
	sum := crc32.ChecksumIEEE(table)
	table = binary.LittleEndian.AppendUint32(table, uint32(len(p.entries)))
	table = binary.LittleEndian.AppendUint32(table, sum)
	table = binary.LittleEndian.AppendUint64(table, packMark)
	_, err := p.w.Write(table)
	p.size += int64(len(table))
	return errors.Join(err, p.w.Flush(), p.f.Sync())
}

// pack gives content as it is to be stored.
func (s *Store) pack(content []byte) ([]byte, byte) {
	if len(content) >= 128 {
		out := s.enc.EncodeAll(content, make([]byte, 0, len(content)/2+64))
		if len(out) < len(content)-len(content)/16 {
			return out, codecZstd
		}
	}
	return content, codecRaw
}

func (s *Store) unpack(raw []byte, codec byte, h Hash) ([]byte, error) {
	if codec == codecZstd {
		var err error
		if raw, err = s.dec.DecodeAll(raw, nil); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, h, err)
		}
	}
	if Sum(raw) != h {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, h)
	}
	return raw, nil
}

// keepOpen bounds the packs that are held open for reading.
const keepOpen = 64

// handles keeps the packs open that were read last.
type handles struct {
	root *os.Root
	mu   sync.Mutex
	m    map[string]*handle
}

type handle struct {
	f    *os.File
	refs int
	gone bool // close with the last reference
}

func (hs *handles) read(name string, offset int64, size uint32) ([]byte, error) {
	h, err := hs.acquire(name)
	if err != nil {
		return nil, err
	}
	defer hs.release(h)
	b := make([]byte, size)
	if _, err := h.f.ReadAt(b, offset); err != nil {
		return nil, fmt.Errorf("%w: %s at %d: %w", ErrDamaged, name, offset, err)
	}
	return b, nil
}

func (hs *handles) acquire(name string) (*handle, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.m[name]
	if h == nil {
		f, err := hs.root.Open(name)
		if err != nil {
			return nil, err
		}
		h = &handle{f: f}
		for old, o := range hs.m { // any: the order of a map is as good as chance
			if len(hs.m) < keepOpen {
				break
			}
			hs.drop(old, o)
		}
		if hs.m == nil {
			hs.m = map[string]*handle{}
		}
		hs.m[name] = h
	}
	h.refs++
	return h, nil
}

func (hs *handles) release(h *handle) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.refs--; h.refs == 0 && h.gone {
		_ = h.f.Close()
	}
}

// drop forgets a handle. The caller holds the lock.
func (hs *handles) drop(name string, h *handle) {
	delete(hs.m, name)
	if h.gone = true; h.refs == 0 {
		_ = h.f.Close()
	}
}

func (hs *handles) forget(name string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := hs.m[name]; h != nil {
		hs.drop(name, h)
	}
}

func (hs *handles) closeAll() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for name, h := range hs.m {
		hs.drop(name, h)
	}
}
