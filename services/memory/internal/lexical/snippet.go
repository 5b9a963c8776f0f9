package lexical

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// snippetScan is how many bytes of a text are looked at for the best place. Longer texts are rare.
const snippetScan = 64 << 10

// Snippet gives the part of text, about width bytes long, that has the most of the terms, the
// first if several have as many. White space is collapsed; … stands where text is left out.
func Snippet(text string, terms []string, width int) string {
	if len(text) <= width {
		return collapse(text)
	}
	at := bestWindow(cut(text, snippetScan), terms, width)
	start, end := at, at+width
	if end >= len(text) {
		start, end = max(0, len(text)-width), len(text)
	}
	start, end = wordBounds(text, start, end)
	s := collapse(text[start:end])
	if start > 0 {
		s = "…" + s
	}
	if end < len(text) {
		s += "…"
	}
	return s
}

// bestWindow gives where a window of width bytes begins that holds the most distinct terms.
func bestWindow(text string, terms []string, width int) int {
	index := make(map[string]int, len(terms))
	for i, t := range terms {
		index[t] = i
	}
	type match struct{ at, term int }
	var window []match
	counts := make([]int, len(terms))
	distinct, best, bestAt := 0, 0, 0
	stems := stemmer{}
	words(text, func(start, end int) bool {
		term, ok := index[stems.of(text[start:end])]
		if !ok {
			return true
		}
		window = append(window, match{start, term})
		if counts[term]++; counts[term] == 1 {
			distinct++
		}
		for end-window[0].at > width*3/4 && len(window) > 1 {
			if counts[window[0].term]--; counts[window[0].term] == 0 {
				distinct--
			}
			window = window[1:]
		}
		if distinct > best {
			best, bestAt = distinct, window[0].at
		}
		return best < len(terms)
	})
	// A little of what comes before makes it readable.
	return max(0, bestAt-width/8)
}

// wordBounds moves start forward and end back to white space, if there is any within 32 bytes, and to
// the bounds of characters in any case.
func wordBounds(text string, start, end int) (int, int) {
	if start > 0 {
		for start < end && !utf8.RuneStart(text[start]) {
			start++
		}
		if i := strings.IndexFunc(text[start:min(start+32, end)], unicode.IsSpace); i >= 0 {
			start += i + 1
		}
	}
	if end < len(text) {
		for end > start && !utf8.RuneStart(text[end]) {
			end--
		}
		from := max(start, end-32)
		if i := strings.LastIndexFunc(text[from:end], unicode.IsSpace); i > 0 {
			end = from + i
		}
	}
	return start, end
}

// TrimWord takes the last word off a text that was cut, if it is short, because it may not be whole.
func TrimWord(text string) string {
	_, end := wordBounds(text+" ", 0, len(text))
	return text[:end]
}

func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }
