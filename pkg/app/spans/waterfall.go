package spans

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxName is how many columns the names of spans may take.
const maxName = 44

// Waterfall draws a trace: a line for each span with its name, a bar where it lies in the whole, and how
// long it took. Children stand under their parents. Where there are more than rows, the shortest are left out;
// 0 rows are as many as there are. width is in columns, of which a failure's code may take some more.
func Waterfall(ss []Span, width, rows int) []string {
	if len(ss) == 0 {
		return nil
	}
	begin, end := ss[0].Start, ss[0].End
	for _, s := range ss {
		if s.Start.Before(begin) {
			begin = s.Start
		}
		if s.End.After(end) {
			end = s.End
		}
	}
	drawn := longest(ss, rows)
	lines, name := treeOf(drawn), 0
	for _, l := range lines {
		name = max(name, utf8.RuneCountInString(l.name))
	}
	name = min(name, maxName)
	scale := bar{begin: begin, total: max(end.Sub(begin), time.Microsecond), width: max(10, width-name-12)}
	out := []string{fmt.Sprintf("%s │0%s%s│", fit("", name), strings.Repeat(" ", max(0, scale.width-1-utf8.RuneCountInString(millis(scale.total)))), millis(scale.total))}
	for _, l := range lines {
		tail := ""
		if l.span.Failed != "" {
			tail = " " + l.span.Failed
		}
		out = append(out, fmt.Sprintf("%s │%s│%s%s", fit(l.name, name), scale.draw(l.span), fmt.Sprintf("%9s", millis(l.span.End.Sub(l.span.Start))), tail))
	}
	if left := len(ss) - len(drawn); left > 0 {
		out = append(out, fmt.Sprintf("and %d shorter ones", left))
	}
	return out
}

// Subtree gives the span with the id and all that it caused; all spans where it is not among them.
func Subtree(ss []Span, id string) []Span {
	below := map[string][]Span{}
	var out []Span
	for _, s := range ss {
		below[s.Parent] = append(below[s.Parent], s)
		if s.ID == id {
			out = append(out, s)
		}
	}
	for i := 0; i < len(out); i++ {
		out = append(out, below[out[i].ID]...)
		below[out[i].ID] = nil // each once, whatever the file says
	}
	if len(out) == 0 {
		return ss
	}
	return out
}

// longest keeps the n longest.
func longest(ss []Span, n int) []Span {
	ss = slices.Clone(ss)
	if n <= 0 || len(ss) <= n {
		return ss
	}
	slices.SortStableFunc(ss, func(a, b Span) int { return int(b.End.Sub(b.Start) - a.End.Sub(a.Start)) })
	return ss[:n]
}

// row is a span in its place in the tree.
type row struct {
	name string
	span Span
}

// treeOf puts spans under their parents, by start. One whose parent is not there is a root.
func treeOf(ss []Span) []row {
	slices.SortStableFunc(ss, func(a, b Span) int { return a.Start.Compare(b.Start) })
	here, below := map[string]bool{}, map[string][]Span{}
	for _, s := range ss {
		here[s.ID] = true
	}
	for _, s := range ss {
		parent := s.Parent
		if !here[parent] || parent == s.ID {
			parent = ""
		}
		below[parent] = append(below[parent], s)
	}
	var out []row
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		for _, s := range below[parent] {
			out = append(out, row{strings.Repeat("  ", depth) + clean(s.Name), s})
			if s.ID != "" {
				add(s.ID, depth+1)
			}
		}
	}
	add("", 0)
	return out
}

// bar is the scale of the drawing.
type bar struct {
	begin time.Time
	total time.Duration
	width int
}

func (b bar) draw(s Span) string {
	at := func(d time.Duration) int { return int(int64(b.width) * int64(d) / int64(b.total)) }
	from := min(at(s.Start.Sub(b.begin)), b.width-1)
	to := min(max(at(s.End.Sub(b.begin)), from+1), b.width)
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", b.width-to)
}

// millis is a duration in milliseconds for people.
func millis(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// clean takes what could steer a terminal out of a name.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// fit shortens or fills s to n columns.
func fit(s string, n int) string {
	if utf8.RuneCountInString(s) > n {
		s = string([]rune(s)[:max(0, n-1)]) + "…"
	}
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}
