package merge

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// MaxText is the size in bytes up to which a file is merged line by line.
const MaxText = 1 << 20

// IsText reports whether content can be merged by lines: valid UTF-8, no NUL, at most MaxText bytes.
func IsText(content []byte) bool {
	return len(content) <= MaxText && bytes.IndexByte(content, 0) < 0 && utf8.Valid(content)
}

// hunk says that lines start to end of the base became text.
type hunk struct {
	start, end int
	text       []string
}

// Text merges two edits of base line by line. ok is false where both touched the same or neighbouring lines in
// different ways: then there is no merged text.
func Text(base, ours, theirs string) (merged string, ok bool) {
	b, o, t := lines(base), lines(ours), lines(theirs)
	ho, ht := hunks(b, o), hunks(b, t)
	var out strings.Builder
	at := 0
	for len(ho) > 0 || len(ht) > 0 {
		lo, mine, yours := region(&ho, &ht)
		hi := lo.end
		write(&out, b[at:lo.start])
		at = hi
		ours, theirs := apply(b, lo, mine), apply(b, lo, yours)
		switch {
		case len(yours) == 0:
			write(&out, ours)
		case len(mine) == 0:
			write(&out, theirs)
		case slices.Equal(ours, theirs):
			write(&out, ours)
		default:
			return "", false
		}
	}
	write(&out, b[at:])
	return out.String(), true
}

// region takes the first hunk off the two lists and all that overlap or touch it, in turn.
func region(ho, ht *[]hunk) (span hunk, mine, yours []hunk) {
	if len(*ht) == 0 || len(*ho) > 0 && (*ho)[0].start <= (*ht)[0].start {
		span = hunk{start: (*ho)[0].start, end: (*ho)[0].start}
	} else {
		span = hunk{start: (*ht)[0].start, end: (*ht)[0].start}
	}
	for {
		switch {
		case len(*ho) > 0 && (*ho)[0].start <= span.end:
			span.end = max(span.end, (*ho)[0].end)
			mine, *ho = append(mine, (*ho)[0]), (*ho)[1:]
		case len(*ht) > 0 && (*ht)[0].start <= span.end:
			span.end = max(span.end, (*ht)[0].end)
			yours, *ht = append(yours, (*ht)[0]), (*ht)[1:]
		default:
			return span, mine, yours
		}
	}
}

// apply gives what one side made of the base's lines in span.
func apply(base []string, span hunk, hs []hunk) []string {
	var out []string
	at := span.start
	for _, h := range hs {
		out = append(append(out, base[at:h.start]...), h.text...)
		at = h.end
	}
	return append(out, base[at:span.end]...)
}

// hunks is the difference of base and other. Where they have very little in common it is coarse, which
// can only make a conflict of what might have merged.
func hunks(base, other []string) []hunk {
	pre := 0
	for pre < len(base) && pre < len(other) && base[pre] == other[pre] {
		pre++
	}
	post := 0
	for post < len(base)-pre && post < len(other)-pre && base[len(base)-1-post] == other[len(other)-1-post] {
		post++
	}
	b, o := base[pre:len(base)-post], other[pre:len(other)-post]
	if len(b) == 0 && len(o) == 0 {
		return nil
	}
	var out []hunk
	for _, d := range lcs.DiffLines(b, o) {
		out = append(out, hunk{start: pre + d.Start, end: pre + d.End, text: o[d.ReplStart:d.ReplEnd]})
	}
	return out
}

// lines splits after each newline. Joined they are s again.
func lines(s string) []string {
	if s == "" {
		return nil
	}
	ls := strings.SplitAfter(s, "\n")
	if ls[len(ls)-1] == "" {
		ls = ls[:len(ls)-1]
	}
	return ls
}

func write(out *strings.Builder, ls []string) {
	for _, l := range ls {
		out.WriteString(l)
	}
}
