// Package manifest describes a tree of files: one node per directory, each stored as a chunk and named by the hash of its
// encoding. A directory that did not change is the same node, so two versions of 10,000 files that differ in ten
// share all but the directories on the way to those ten. Nothing here follows a symlink or touches a disk.
package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Type is what an entry is.
type Type byte

// The types. What a tree on disk has beside these (FIFOs, sockets, devices) is never stored.
const (
	File    Type = 'f'
	Dir     Type = 'd'
	Symlink Type = 'l'
)

// Limits of what is stored and of what is believed when decoding.
const (
	MaxName    = 255
	MaxPath    = 4096
	MaxDepth   = 64
	MaxTarget  = 4095
	MaxEntries = 1 << 20 // of one directory
	maxSize    = 1 << 50 // bytes of one file or tree
)

// version is the first byte of every node.
const version = 1

// Entry is one name in a directory.
type Entry struct {
	Name  string
	Type  Type
	Mode  uint32 // permission bits, at most 0777
	MTime int64  // nanoseconds since 1970
	Size  int64  // of a file's content, or of all files below a directory
	Files int64  // files and symlinks below a directory
	// Hash of a file's content, or of a directory's node; zero for an empty file and for symlinks.
	Hash chunks.Hash
	// Index names the chunk that lists the pieces of a file which is more than one chunk, see Pieces; zero
	// where the content is one chunk, whose name then is Hash.
	Index  chunks.Hash
	Target string // of a symlink
}

// Node is one directory, sorted by name.
type Node struct{ Entries []Entry }

// Same reports whether a and b hold the same content under the same permissions. Times are not content.
func Same(a, b Entry) bool {
	return a.Type == b.Type && a.Mode == b.Mode && a.Hash == b.Hash && a.Target == b.Target && a.Size == b.Size
}

// Find gives the entry with that name.
func (n *Node) Find(name string) (Entry, bool) {
	i := n.search(name)
	if i < len(n.Entries) && n.Entries[i].Name == name {
		return n.Entries[i], true
	}
	return Entry{}, false
}

func (n *Node) search(name string) int {
	lo, hi := 0, len(n.Entries)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); n.Entries[m].Name < name {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// Totals are the files and symlinks below n, and their bytes.
func (n *Node) Totals() (files, bytes int64) {
	for _, e := range n.Entries {
		if e.Type == Dir {
			files += e.Files
		} else {
			files++
		}
		bytes += e.Size
	}
	return files, bytes
}

// Encode writes n. Equal nodes give equal bytes.
func (n *Node) Encode() []byte {
	b := make([]byte, 0, 16+len(n.Entries)*80)
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(n.Entries)))
	for _, e := range n.Entries {
		b = append(b, byte(e.Type))
		b = appendString(b, e.Name)
		b = binary.AppendUvarint(b, uint64(e.Mode))
		b = binary.AppendVarint(b, e.MTime)
		switch e.Type {
		case File:
			b = binary.AppendUvarint(b, uint64(e.Size))
			if e.Size == 0 {
				continue
			}
			b = append(b, e.Hash[:]...)
			if e.Index.IsZero() {
				b = append(b, 0)
			} else {
				b = append(append(b, 1), e.Index[:]...)
			}
		case Dir:
			b = binary.AppendUvarint(b, uint64(e.Size))
			b = binary.AppendUvarint(b, uint64(e.Files))
			b = append(b, e.Hash[:]...)
		case Symlink:
			b = appendString(b, e.Target)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// CheckName refuses what can't be the name of a stored entry.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q can't be a file's name", name)
	case len(name) > MaxName:
		return fmt.Errorf("name of %d bytes is longer than %d", len(name), MaxName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("name %q has a slash or a NUL", name)
	case !validUTF8(name):
		return fmt.Errorf("name %q is not valid UTF-8", name)
	}
	return nil
}

// Decode reads a node and believes nothing: names, order, types and bounds are checked, and what is
// accepted encodes to the same bytes.
func Decode(b []byte) (*Node, error) {
	r := reader{b: b}
	if r.byte() != version {
		return nil, errors.New("manifest: not a node of this version")
	}
	count := r.uvarint(MaxEntries)
	n := &Node{}
	if most := uint64(len(b)) / 6; count <= most { // no entry is shorter
		n.Entries = make([]Entry, 0, count)
	} else {
		return nil, errors.New("manifest: more entries than bytes")
	}
	for range count {
		e := r.entry()
		if r.err != nil {
			break
		}
		if err := CheckName(e.Name); err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		if k := len(n.Entries); k > 0 && n.Entries[k-1].Name >= e.Name {
			return nil, fmt.Errorf("manifest: %q is out of order", e.Name)
		}
		n.Entries = append(n.Entries, e)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("bytes after the end")
	}
	if r.err != nil {
		return nil, fmt.Errorf("manifest: %w", r.err)
	}
	return n, nil
}

// reader takes values off b until the first error, which stays.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
		r.b = nil
	}
}

func (r *reader) take(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.fail("cut short")
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 { // the second: not the shortest form
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	if v > limit {
		r.fail("number %d is over %d", v, limit)
		return 0
	}
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string(limit uint64) string { return string(r.take(r.uvarint(limit))) }

func (r *reader) hash() chunks.Hash {
	var h chunks.Hash
	copy(h[:], r.take(uint64(len(h))))
	if h.IsZero() {
		r.fail("empty hash")
	}
	return h
}

func (r *reader) entry() Entry {
	e := Entry{Type: Type(r.byte()), Name: r.string(MaxName), Mode: uint32(r.uvarint(0o777)), MTime: r.varint()}
	switch e.Type {
	case File:
		e.Size = int64(r.uvarint(maxSize))
		if e.Size == 0 {
			return e
		}
		e.Hash = r.hash()
		switch r.byte() {
		case 0:
			if e.Size > chunks.MaxChunk {
				r.fail("one chunk of %d bytes", e.Size)
			}
		case 1:
			e.Index = r.hash()
		default:
			r.fail("unknown form of content")
		}
	case Dir:
		e.Size = int64(r.uvarint(maxSize))
		e.Files = int64(r.uvarint(maxSize))
		e.Hash = r.hash()
	case Symlink:
		e.Target = r.string(MaxTarget)
	default:
		r.fail("unknown type %q", byte(e.Type))
	}
	return e
}
