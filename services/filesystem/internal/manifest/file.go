package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Store puts what r gives and describes it in a file's entry: Size, Hash and Index. More than limit bytes
// are chunks.ErrTooLong.
func Store(b *chunks.Batch, r io.Reader, limit int64) (Entry, error) {
	pieces, whole, size, err := b.Cut(r, limit)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Type: File, Size: size}
	switch len(pieces) {
	case 0:
	case 1:
		e.Hash = whole
	default:
		e.Hash = whole
		if e.Index, err = b.Put(encodeIndex(pieces)); err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

func encodeIndex(pieces []chunks.Piece) []byte {
	b := make([]byte, 0, len(pieces)*36)
	for _, p := range pieces {
		b = append(b, p.Hash[:]...)
		b = binary.AppendUvarint(b, uint64(p.Size))
	}
	return b
}

func decodeIndex(b []byte, size int64) ([]chunks.Piece, error) {
	r := reader{b: b}
	pieces := make([]chunks.Piece, 0, len(b)/36+1)
	var sum int64
	for len(r.b) > 0 {
		p := chunks.Piece{Hash: r.hash(), Size: int64(r.uvarint(chunks.MaxChunk))}
		if p.Size == 0 {
			r.fail("empty piece")
		}
		if r.err != nil {
			return nil, fmt.Errorf("manifest: index: %w", r.err)
		}
		sum += p.Size
		pieces = append(pieces, p)
	}
	if sum != size {
		return nil, fmt.Errorf("manifest: index: pieces have %d bytes, the file %d", sum, size)
	}
	return pieces, nil
}

// Source reads chunks: a chunks.Store or a chunks.Batch.
type Source interface {
	Get(chunks.Hash) ([]byte, error)
}

// Pieces lists the chunks of a file's content in order.
func Pieces(src Source, e Entry) ([]chunks.Piece, error) {
	switch {
	case e.Type != File:
		return nil, errors.New("manifest: not a file")
	case e.Size == 0:
		return nil, nil
	case e.Index.IsZero():
		return []chunks.Piece{{Hash: e.Hash, Size: e.Size}}, nil
	}
	b, err := src.Get(e.Index)
	if err != nil {
		return nil, err
	}
	return decodeIndex(b, e.Size)
}

// Open reads a file's content from offset on. Every chunk is checked against its name.
func Open(src Source, e Entry, offset int64) (io.Reader, error) {
	pieces, err := Pieces(src, e)
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset > e.Size {
		return nil, fmt.Errorf("offset %d is outside of the file's %d bytes", offset, e.Size)
	}
	for len(pieces) > 0 && offset >= pieces[0].Size {
		offset -= pieces[0].Size
		pieces = pieces[1:]
	}
	return &content{src: src, pieces: pieces, skip: offset}, nil
}

// content reads piece after piece.
type content struct {
	src    Source
	pieces []chunks.Piece
	skip   int64 // bytes of the first piece that are not wanted
	rest   []byte
}

func (c *content) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if len(c.pieces) == 0 {
			return 0, io.EOF
		}
		b, err := c.src.Get(c.pieces[0].Hash)
		if err != nil {
			return 0, err
		}
		if int64(len(b)) != c.pieces[0].Size {
			return 0, fmt.Errorf("%w: %s has another length than its index says", chunks.ErrDamaged, c.pieces[0].Hash)
		}
		c.rest, c.pieces, c.skip = b[c.skip:], c.pieces[1:], 0
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// WriteTo hands on whole chunks.
func (c *content) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if len(c.rest) == 0 {
			if _, err := c.Read(nil); err == io.EOF {
				return total, nil
			} else if err != nil {
				return total, err
			}
		}
		n, err := w.Write(c.rest)
		total += int64(n)
		c.rest = c.rest[n:]
		if err != nil {
			return total, err
		}
	}
}
