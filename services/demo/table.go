package demo

import (
	"strings"
	"unicode/utf8"
)

// table lays rows out in columns under a header, two spaces apart. Columns of which the header begins
// with ">" are aligned to the right.
func table(header []string, rows [][]string) []string {
	right := make([]bool, len(header))
	all := [][]string{make([]string, len(header))}
	for i, h := range header {
		all[0][i], right[i] = strings.CutPrefix(h, ">")
	}
	all = append(all, rows...)
	width := make([]int, len(header))
	for _, r := range all {
		for i := range r {
			r[i] = clean(r[i])
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	out := make([]string, 0, len(all))
	for _, r := range all {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if right[i] {
				c = pad + c
			} else {
				c += pad
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}
