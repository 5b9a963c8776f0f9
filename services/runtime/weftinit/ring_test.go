package weftinit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRing drives a ring by a program of writes with different holds, against a plain slice of all that
// was taken.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 200, 2, 7, 3, 255, 0, 90}, uint16(100), false)
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 1}, uint16(300), true)
	f.Fuzz(func(t *testing.T, program []byte, limit uint16, history bool) {
		b := budgetOf(1 << 12)
		r := newRing(b, max(1, int(limit)%5000))
		defer r.free()
		var all []byte
		for i := 0; i+1 < len(program); i += 2 {
			size, how := int(program[i])*13, program[i+1]
			hold := uint64(nothingHeld)
			if how%3 != 0 { // something between the oldest and the end is wanted still
				hold = r.oldest + uint64(how)*(r.end-r.oldest)/255
			}
			p := make([]byte, size)
			for j := range p {
				p[j] = byte(len(all) + j + i)
			}
			n := r.write(p, hold, history)
			require.LessOrEqual(t, n, size)
			if hold == nothingHeld {
				require.Equal(t, size, n, "nothing held: all is taken")
			} else {
				require.LessOrEqual(t, r.oldest, hold, "what is held is kept")
			}
			all = append(all, p[:n]...)
			require.EqualValues(t, len(all), r.end)
			require.LessOrEqual(t, r.end-r.oldest, uint64(r.limit))
			got := make([]byte, r.end-r.oldest+10)
			m := r.read(r.oldest, got)
			require.Equal(t, string(all[r.oldest:]), string(got[:m]))
			r.seen = max(r.seen, r.oldest)
		}
	})
}

func TestRingGrowsWithinTheBudget(t *testing.T) {
	b := budgetOf(256 << 10)
	one, two := newRing(b, 1<<20), newRing(b, 1<<20)
	p := make([]byte, 1<<20)
	require.Zero(t, len(one.buf), "no memory before the first byte")
	require.Equal(t, 256<<10, one.write(p, 0, true))
	require.Equal(t, ringFirst, two.write(p, 0, true), "each has its first part in any case")
	one.free()
	require.Equal(t, 192<<10, two.write(p, 0, true), "what one gave back the other may have")
	two.free()
	require.Zero(t, b.used.Load())
}

func TestRingCountsWhatNobodySaw(t *testing.T) {
	r := newRing(budgetOf(1<<20), 100)
	defer r.free()
	r.write(make([]byte, 100), nothingHeld, true)
	r.seen = 30
	r.write(make([]byte, 50), nothingHeld, true)
	require.EqualValues(t, 20, r.lost)
	r.write(make([]byte, 1000), nothingHeld, true)
	require.EqualValues(t, 1150-30-100, r.lost)
}

func budgetOf(limit int64) *budget {
	b := &budget{}
	b.limit.Store(limit)
	return b
}
