package mongo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Marks counts the supersessions that are not settled.
func (s *Store) Marks(t *testing.T) int {
	n, err := s.marks.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return int(n)
}

// SetClock replaces the clock. No call may be under way.
func (s *Store) SetClock(now func() time.Time) { s.now = now }
