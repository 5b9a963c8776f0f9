package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Colours. Tasks take theirs from palette in turn.
const (
	bold   = "1"
	grey   = "90"
	red    = "31"
	green  = "32"
	yellow = "33"
)

var palette = []string{"36", "35", "34", "33", "32", "96", "95", "94", "93", "92"}

// labelWidth is how many columns the name of a task has.
const labelWidth = 20

// view writes what a person sees: a line for each event and each line of output, with the time since
// the beginning and whose it is. It is safe for concurrent use.
type view struct {
	mu    sync.Mutex
	w     io.Writer
	color bool
	width func() int
	now   func() time.Time
	start time.Time
}

func newView(o Options) *view {
	return &view{w: o.Out, color: o.Color, width: o.Width, now: time.Now, start: time.Now()}
}

func (v *view) paint(style, s string) string {
	if !v.color || s == "" || style == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (v *view) print(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.w, s)
}

// heading begins a stage.
func (v *view) heading(number, of int, title string) {
	rule := fmt.Sprintf("── %d/%d %s ", number, of, title)
	rule += strings.Repeat("─", max(0, min(v.width(), 100)-utf8.RuneCountInString(rule)))
	v.print("\n" + v.paint(bold, rule) + "\n")
}

// say tells a person something.
func (v *view) say(format string, args ...any) {
	v.print(v.stamp() + clip(clean(fmt.Sprintf(format, args...)), v.room()) + "\n")
}

// loud is say for what must not be missed.
func (v *view) loud(format string, args ...any) {
	v.print(v.stamp() + v.paint(bold+";"+yellow, clip(clean(fmt.Sprintf(format, args...)), v.room())) + "\n")
}

// block prints lines as they are, clipped to the width.
func (v *view) block(lines ...string) {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(clip(l, v.width()) + "\n")
	}
	v.print(b.String())
}

// event is a change of a record.
func (v *view) event(colour, label, what, detail string) {
	what = fmt.Sprintf("%-10s", what)
	left := v.room() - labelWidth - 3 - len(what) - 1
	v.print(v.stamp() + v.paint(colour, v.label(label)) + " ● " + v.paint(bold, what) + " " + v.paint(grey, clip(clean(detail), left)) + "\n")
}

// output is one line that a task wrote. Lines of stderr are marked.
func (v *view) output(colour, label, stream, text string) {
	bar := "│"
	if stream != stdout {
		bar = "┃"
	}
	v.print(v.stamp() + v.paint(colour, v.label(label)+" "+bar) + " " + clip(clean(text), v.room()-labelWidth-3) + "\n")
}

// check shows whether a claim held.
func (v *view) check(c Check) {
	mark := v.paint(green, "✓")
	if !c.OK {
		mark = v.paint(red, "✗")
	}
	text := c.Claim
	if c.Detail != "" {
		text += ": " + c.Detail
	}
	if c.OK {
		text = clip(clean(text), v.room()-2)
	}
	v.print(v.stamp() + mark + " " + text + "\n")
}

func (v *view) label(s string) string { return fit(clean(s), labelWidth) }

// stampWidth is how many columns the time takes.
const stampWidth = 8

func (v *view) stamp() string {
	return v.paint(grey, fmt.Sprintf("%6.1fs ", v.now().Sub(v.start).Seconds()))
}

func (v *view) room() int { return v.width() - stampWidth }

// clean makes what others wrote safe for a terminal: no control characters, valid UTF-8.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// clip shortens s to n columns.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-1)]) + "…"
}

// fit makes s exactly n columns wide.
func fit(s string, n int) string {
	s = clip(s, n)
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}
