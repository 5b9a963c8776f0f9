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
	match := bestWindow(cut(text, snippetScan), terms, width)
	start := max(0, match-width/8) // a little of what comes before makes it readable
	end := start + width
	if end >= len(text) {
		start, end = len(text)-width, len(text)
	}
	start, end = wordStart(text, start, match), wordEnd(text, match, end)
	s := collapse(text[start:end])
	if start > 0 {
		s = "…" + s
	}
	if end < len(text) {
		s += "…"
	}
	return s
}

// bestWindow gives where the first term is of the window of width bytes that holds the most distinct ones.
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
	return bestAt
}

// wordReach is how far a cut moves to find white space.
const wordReach = 32

// wordStart moves start forward to the beginning of a character, and behind white space if there is some near
// and not behind match.
func wordStart(text string, start, match int) int {
	if start == 0 {
		return 0
	}
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	if near := min(start+wordReach, match); near > start {
		if i := strings.IndexFunc(text[start:near], unicode.IsSpace); i >= 0 {
			_, width := utf8.DecodeRuneInString(text[start+i:])
			return start + i + width
		}
	}
	return start
}

// wordEnd moves end back to the end of a character, and before white space if there is some near and not
// before match.
func wordEnd(text string, match, end int) int {
	if end >= len(text) {
		return len(text)
	}
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	from := max(match, end-wordReach)
	for from < end && !utf8.RuneStart(text[from]) {
		from++
	}
	if i := strings.LastIndexFunc(text[from:end], unicode.IsSpace); i > 0 {
		return from + i
	}
	return end
}

// Shorten gives the beginning of text, at most n bytes long, cut between words where it can.
func Shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:wordEnd(text, 0, n)]
}

func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }
