package lexical_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/internal/lexical"
)

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"... --- !!!":                       "",
		"The gateway's Certificates EXPIRE": "the gateway s certif expir",
		"running runs run":                  "run run run",
		"max_open_files=64":                 "max open file 64",
		"café Café cafe CAFÉ":               "cafe cafe cafe cafe",
		"東京タワー":                             "東 京 タ ワ ー",
		"Go言語で書く":                           "go 言 語 で 書 く",
		"Москва и Москвы":                   "москва и москвы",
		"हिन्दी":                            "हिन्दी",
		"a\xffb\x00c":                       "a b c",
		strings.Repeat("x", 100):            strings.Repeat("x", 64),
		"v1.2.3":                            "v1 2 3",
	} {
		require.Equal(t, want, strings.Join(lexical.Terms(text), " "), "%q", text)
	}
}

func TestQuery(t *testing.T) {
	for query, want := range map[string]string{
		"When did the certificates expire?": "certif expir",
		"expired expiring EXPIRES":          "expir",
		"to be or not to be":                "to be or not",
		"?":                                 "",
		"the the the":                       "the",
	} {
		require.Equal(t, want, strings.Join(lexical.Query(query), " "), "%q", query)
	}
	long := strings.Builder{}
	for i := range 2000 {
		long.WriteRune(rune('㐀' + i))
	}
	require.Len(t, lexical.Query(long.String()), 32)
}

func TestSnippet(t *testing.T) {
	fill := strings.Repeat("lorem ipsum ", 100)
	for _, c := range []struct {
		name, text string
		terms      []string
		want       string
	}{
		{"short texts whole", "  a short\n text ", []string{"text"}, "a short text"},
		{"where the words are", fill + "the quick brown fox " + fill, []string{"quick", "fox"}, "…the quick brown fox lorem ipsum lorem…"},
		{"most words win", "fox " + fill + "quick fox " + fill, []string{"quick", "fox"}, "…quick fox lorem ipsum lorem ipsum…"},
		{"a word that matches is not cut off", fill + "x/y/quick " + fill, []string{"quick"}, "…x/y/quick lorem ipsum lorem ipsum…"},
		{"at the end", fill + "the end", []string{"end"}, "…ipsum lorem ipsum lorem ipsum the end"},
		{"nothing matches", fill, []string{"absent"}, "lorem ipsum lorem ipsum lorem ipsum…"},
		{"no words to break at", strings.Repeat("東", 100), []string{"京"}, strings.Repeat("東", 13) + "…"},
	} {
		require.Equal(t, c.want, lexical.Snippet(c.text, c.terms, 40), c.name)
	}
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"", "a b", "İ ǅ ﬁ ½ Å", "日本\u0301", "\xff\xfe", "a\x00b", "()[]\"'*:^-", "e\u0301\u0302", "ᄀᄁ", "A\u200dB", "\ufdfa"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, term := range append(lexical.Terms(s), lexical.Query(s)...) {
			require.NotEmpty(t, term)
			require.True(t, utf8.ValidString(term))
			for _, r := range term {
				require.True(t, unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r), "%q in %q", r, term)
			}
		}
		require.True(t, utf8.ValidString(lexical.Snippet(strings.ToValidUTF8(s, ""), lexical.Query(s), 20)))
	})
}
