package manifest

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// suffixes of Kubernetes quantities: decimal ones and binary ones.
var suffixes = map[string]*big.Rat{
	"n": big.NewRat(1, 1e9), "u": big.NewRat(1, 1e6), "m": big.NewRat(1, 1e3), "": big.NewRat(1, 1),
	"k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1), "T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1),
	"Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1), "Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

// quantity reads an amount as Kubernetes writes it ("500m", "1.5Gi", "2e3") in units of one per: 1000 for
// thousandths. Fractions of a unit are rounded up, as there. It must be over 0, and at most 2^60 units.
func quantity(s string, per int64) (int64, error) {
	bad := fmt.Errorf("%q is no quantity, as 500m, 2 or 512Mi", clip(s))
	number := strings.TrimRight(s, "numkKMGTPEi")
	suffix := s[len(number):]
	if base, exponent, ok := strings.Cut(strings.ToLower(number), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e < -18 || e > 18 || suffix != "" {
			return 0, bad
		}
		number = base + "e" + exponent
	}
	factor := suffixes[suffix]
	if factor == nil || len(number) > 40 || strings.ContainsAny(number, "/_xXpPbBoO") {
		return 0, bad
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, bad
	}
	v.Mul(v, factor).Mul(v, big.NewRat(per, 1))
	if v.Sign() <= 0 || v.Cmp(big.NewRat(1<<60, 1)) > 0 {
		return 0, fmt.Errorf("%q is out of range", clip(s))
	}
	up, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		up.Add(up, big.NewInt(1))
	}
	return up.Int64(), nil
}
