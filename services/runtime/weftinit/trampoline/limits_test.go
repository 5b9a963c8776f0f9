package trampoline

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncoding(t *testing.T) {
	for _, in := range [][]Limit{nil, {{7, 0, math.MaxUint64}}, {{9, 1, 2}, {0, 10, 100}}} {
		out, ok := Decode(Encode(in))
		require.True(t, ok)
		require.Equal(t, in, out)
	}
	for _, bad := range []string{"1", "1:2,", "a:1:2,", "1:2:3", "1:2:3:4,", "1:-2:3,", "1::3,", "1:2:99999999999999999999,", "1:2:18446744073709551616,"} {
		_, ok := Decode(bad)
		require.False(t, ok, bad)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("7:1:2,")
	f.Fuzz(func(t *testing.T, s string) {
		if limits, ok := Decode(s); ok {
			again, ok := Decode(Encode(limits))
			require.True(t, ok)
			require.Equal(t, limits, again)
		}
	})
}
