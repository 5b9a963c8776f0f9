package chunks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Hash is the SHA-256 of a chunk's content, and its name.
type Hash [sha256.Size]byte

// Sum is the hash of b.
func Sum(b []byte) Hash { return sha256.Sum256(b) }

// String is 64 characters of lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether h was never set. No content has this hash.
func (h Hash) IsZero() bool { return h == Hash{} }

// ParseHash reads what String wrote.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != hex.EncodedLen(len(h)) {
		return h, fmt.Errorf("hash %.80q must be %d hex characters", s, hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fmt.Errorf("hash %q: %w", s, err)
	}
	return h, nil
}
