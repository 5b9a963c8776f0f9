package chunks

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	cdc "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers its name
)

// Sizes in bytes between which content is cut. A file up to CutMin is one chunk.
const (
	CutMin = 64 << 10
	CutAvg = 128 << 10
	CutMax = 512 << 10
)

// Piece is one chunk of a content.
type Piece struct {
	Hash Hash
	Size int64
}

// ErrTooLong says that a content is longer than its caller allows.
var ErrTooLong = errors.New("content is too long")

// Cut stores what r gives as chunks, cut where the content itself says so, so that an insertion changes
// the chunks around it and no others. It gives the pieces in order, the hash of the whole and its length.
// More than limit bytes are refused with ErrTooLong.
func (b *Batch) Cut(r io.Reader, limit int64) ([]Piece, Hash, int64, error) {
	// Most files are small: one read, one chunk, no chunker.
	head := make([]byte, CutMin)
	n, err := io.ReadFull(r, head)
	switch {
	case err == io.EOF:
		return nil, Sum(nil), 0, nil
	case err == io.ErrUnexpectedEOF:
		if int64(n) > limit {
			return nil, Hash{}, 0, ErrTooLong
		}
		h, err := b.Put(head[:n])
		return []Piece{{h, int64(n)}}, h, int64(n), err
	case err != nil:
		return nil, Hash{}, 0, err
	}
	return b.cut(io.MultiReader(bytes.NewReader(head), r), limit)
}

func (b *Batch) cut(r io.Reader, limit int64) ([]Piece, Hash, int64, error) {
	c, err := cdc.NewChunker("fastcdc", r, &cdc.ChunkerOpts{MinSize: CutMin, NormalSize: CutAvg, MaxSize: CutMax})
	if err != nil {
		return nil, Hash{}, 0, fmt.Errorf("chunker: %w", err)
	}
	var pieces []Piece
	var size int64
	whole := sha256.New()
	for {
		data, err := c.Next()
		if err != nil && err != io.EOF {
			return nil, Hash{}, 0, err
		}
		if len(data) > 0 {
			size += int64(len(data))
			if size > limit {
				return nil, Hash{}, 0, ErrTooLong
			}
			h, perr := b.Put(data)
			if perr != nil {
				return nil, Hash{}, 0, perr
			}
			whole.Write(data)
			pieces = append(pieces, Piece{h, int64(len(data))})
		}
		if err == io.EOF {
			return pieces, Hash(whole.Sum(nil)), size, nil
		}
	}
}
