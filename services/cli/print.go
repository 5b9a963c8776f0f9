package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// one is the shape of a single thing, many of a list, line of one of several lines, failure of an error.
type (
	one struct {
		Schema string `json:"schema"`
		Item   any    `json:"item"`
	}
	list struct {
		Schema string `json:"schema"`
		Items  any    `json:"items"`
	}
	line struct {
		Schema string `json:"schema"`
		Type   string `json:"type"`
		Item   any    `json:"item"`
	}
	failure struct {
		Schema string `json:"schema"`
		Error  reason `json:"error"`
	}
	reason struct {
		Code    fault.Code `json:"code"`
		Message string     `json:"message"`
		Exit    int        `json:"exit"`
	}
)

func (a *app) printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// item prints one thing: as JSON, or by human.
func (a *app) item(v any, human func(w io.Writer)) error {
	if a.json {
		return a.printJSON(a.out, one{Schema, v})
	}
	human(a.out)
	return nil
}

// done prints v as JSON, or one sentence for people to stderr: there is no data.
func (a *app) done(v any, format string, args ...any) error {
	if a.json {
		return a.printJSON(a.out, one{Schema, v})
	}
	a.say(format, args...)
	return nil
}

// items prints a list: as JSON, or as a table with a line for each.
func items[T any](a *app, vs []T, header string, row func(T) []string) error {
	if a.json {
		if vs == nil {
			vs = []T{}
		}
		return a.printJSON(a.out, list{Schema, vs})
	}
	rows := make([][]string, len(vs))
	for i, v := range vs {
		rows[i] = row(v)
	}
	a.table(strings.Fields(header), rows)
	return nil
}

// event prints one line of a command that follows.
func (a *app) event(kind string, v any) error { return a.printJSON(a.out, line{Schema, kind, v}) }

// say tells people something.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// progress tells people something that is of no use in a log.
func (a *app) progress(format string, args ...any) {
	if isTerminal(a.err) && !a.json {
		a.say(format, args...)
	}
}

// fail tells of a failure and gives the exit code.
func (a *app) fail(err error) int {
	code := ExitCode(err)
	if a.json {
		_ = a.printJSON(a.err, failure{Schema, reason{fault.CodeOf(err), message(err), code}})
		return code
	}
	a.say("weft: %s", message(err))
	return code
}

// message is what a person is told: the whole chain, since nothing in it came over the wire but
// sentences that were meant to.
func message(err error) string { return err.Error() }

// table prints rows under a header. Nothing but the header is printed for none, so that a person sees
// that there are none, and a program can drop the first line.
func (a *app) table(header []string, rows [][]string) {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for i := range header {
		header[i] = strings.ToUpper(strings.ReplaceAll(header[i], "_", " "))
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, r := range rows {
		for i := range r {
			r[i] = cell(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush()
}

// fields prints what is known of one thing, a line each; empty ones are left out.
func fields(w io.Writer, pairs ...string) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", pairs[i], cell(pairs[i+1]))
		}
	}
	_ = t.Flush()
}

// cell makes what others wrote safe to show in one cell of a terminal: no control characters.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// Colours by meaning.
const (
	green  = "32"
	red    = "31"
	yellow = "33"
	grey   = "90"
)

func (a *app) paint(colour, s string) string {
	if !a.color || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

func (a *app) state(s workspace.State) string {
	switch s {
	case workspace.Complete:
		return a.paint(green, string(s))
	case workspace.Error, workspace.Rejected:
		return a.paint(red, string(s))
	case workspace.Running:
		return a.paint(yellow, string(s))
	}
	return string(s)
}

// age is how long ago t was, in one or two units.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return short(time.Since(t))
}

func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func between2(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}
	return short(to.Sub(*from))
}

func clock(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// size is a number of bytes for people.
func size(n int64) string {
	units := "KMGTP"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, i := float64(n)/1024, 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f%ciB", v, units[i])
}

// clip shortens a text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
