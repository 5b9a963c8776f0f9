// Package lexical turns text into the terms that full-text search compares: words split at everything
// that is no letter, mark or digit, in lower case, without diacritics, stemmed as English (Porter's second
// stemmer leaves words of other alphabets alone). Scripts without spaces give one term a character.
//
// Both stores index what this package makes, so that they find the same. A change of what it makes is a
// change of the index: it needs a migration.
package lexical

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// Limits of what is indexed.
const (
	maxWord  = 64 // bytes of a word; the rest of a longer one is left out
	maxTerms = 32 // distinct terms of a query; the rest is left out
)

// unspaced are the scripts written without spaces between words.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// Terms gives the terms of text in order, with repetitions.
func Terms(text string) []string {
	var terms []string
	stems := stemmer{}
	words(text, func(start, end int) bool {
		if t := stems.of(text[start:end]); t != "" {
			terms = append(terms, t)
		}
		return true
	})
	return terms
}

// Query gives the distinct terms of a query in order, at most 32. Words that are in every text (the, of,
// is) are left out, unless there are no others. It is empty if the query has no word at all.
func Query(query string) []string {
	var terms, stops []string
	seen := map[string]bool{}
	stems := stemmer{}
	words(query, func(start, end int) bool {
		word := query[start:end]
		t := stems.of(word)
		if t == "" || seen[t] {
			return true
		}
		seen[t] = true
		if english.IsStopWord(strings.ToLower(word)) {
			if len(stops) < maxTerms {
				stops = append(stops, t)
			}
			return true
		}
		terms = append(terms, t)
		return len(terms) < maxTerms
	})
	if len(terms) == 0 {
		return stops
	}
	return terms
}

// words calls yield with the bounds of each word of text, until it returns false.
func words(text string, yield func(start, end int) bool) {
	start := -1
	for i, r := range text {
		switch {
		case r < utf8.RuneSelf && isASCIIWord(byte(r)), r >= utf8.RuneSelf && isWord(r):
			if r >= utf8.RuneSelf && !unicode.IsMark(r) && unicode.IsOneOf(unspaced, r) {
				if start >= 0 && !yield(start, i) {
					return
				}
				start = -1
				if !yield(i, i+utf8.RuneLen(r)) {
					return
				}
				continue
			}
			if start < 0 {
				start = i
			}
		case start >= 0:
			if !yield(start, i) {
				return
			}
			start = -1
		}
	}
	if start >= 0 {
		yield(start, len(text))
	}
}

func isASCIIWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isWord leaves out U+FFFD, which invalid text is full of.
func isWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// stemmer remembers the terms of words, because a text repeats its words.
type stemmer map[string]string

func (s stemmer) of(word string) string {
	if t, ok := s[word]; ok {
		return t
	}
	t := english.Stem(fold(word), true)
	s[word] = t
	return t
}

// fold brings a word to lower case, takes its diacritics off and cuts it to maxWord.
func fold(word string) string {
	if len(word) > maxWord {
		word = cut(word, maxWord)
	}
	ascii := true
	for i := range len(word) {
		ascii = ascii && word[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(word)
	}
	var b strings.Builder
	for _, r := range norm.NFKD.String(word) {
		diacritic := r >= 0x300 && r <= 0x36f // other marks are vowels of their scripts
		if !diacritic && isWord(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return cut(norm.NFC.String(b.String()), maxWord)
}

// cut shortens s to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
