package trampoline

// Encode writes limits as one argument: number:soft:hard, each followed by a comma. There is no
// strconv here; see the package's doc.
func Encode(limits []Limit) string {
	var b []byte
	for _, l := range limits {
		b = append(appendNumber(b, uint64(l.Number)), ':')
		b = append(appendNumber(b, l.Soft), ':')
		b = append(appendNumber(b, l.Hard), ',')
	}
	return string(b)
}

func appendNumber(b []byte, n uint64) []byte {
	var digits [20]byte
	at := len(digits)
	for {
		at--
		digits[at] = '0' + byte(n%10)
		if n /= 10; n == 0 {
			return append(b, digits[at:]...)
		}
	}
}

// Decode reads what Encode wrote.
func Decode(s string) ([]Limit, bool) {
	var out []Limit
	for len(s) > 0 {
		var field [3]uint64
		for i, end := range [3]byte{':', ':', ','} {
			digits := 0
			for len(s) > 0 && s[0] >= '0' && s[0] <= '9' {
				n := field[i]*10 + uint64(s[0]-'0')
				if n/10 != field[i] {
					return nil, false // over 64 bits
				}
				field[i], s, digits = n, s[1:], digits+1
			}
			if digits == 0 || len(s) == 0 || s[0] != end {
				return nil, false
			}
			s = s[1:]
		}
		out = append(out, Limit{int(field[0]), field[1], field[2]})
	}
	return out, true
}
