package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// terminal keeps one line per stage and redraws them in place.
type terminal struct {
	out    *os.File
	colour bool

	mu       sync.Mutex
	stages   []provision.Stage
	statuses map[string]provision.Status
	drawn    int // lines on the screen that are ours
	frame    int
	stop     chan struct{}
	done     chan struct{}
}

func newTerminal(out *os.File) *terminal {
	return &terminal{out: out, colour: os.Getenv("NO_COLOR") == "", statuses: map[string]provision.Status{},
		stop: make(chan struct{}), done: make(chan struct{})}
}

func (t *terminal) begin(headline string, stages []provision.Stage) {
	t.stages = stages
	fmt.Fprintln(t.out, headline)
	go t.animate()
}

func (t *terminal) animate() {
	defer close(t.done)
	tick := time.NewTicker(120 * time.Millisecond)
	defer tick.Stop()
	for {
		t.draw()
		select {
		case <-t.stop:
			t.draw()
			return
		case <-tick.C:
		}
	}
}

func (t *terminal) Changed(s provision.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[s.Stage.Name] = s
}

func (t *terminal) end() {
	close(t.stop)
	<-t.done
}

// draw writes all lines in one go, so that nothing flickers.
func (t *terminal) draw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	width, _, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, stage := range t.stages {
		b.WriteString("\r\x1b[2K" + t.line(stage, width) + "\n")
	}
	t.drawn = len(t.stages)
	t.frame++
	_, _ = t.out.WriteString(b.String())
}

var spinner = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

const (
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

// line is what is to be seen of a stage, at most width-1 columns so that no terminal wraps it.
func (t *terminal) line(stage provision.Stage, width int) string {
	s, known := t.statuses[stage.Name]
	mark, style, news := "·", dim, ""
	switch {
	case !known:
	case s.State == provision.Waiting:
		news = "waits " + s.Why
	case s.State == provision.Running:
		mark, style = string(spinner[t.frame%len(spinner)]), cyan
		news = fmt.Sprintf("%s of about %s", clock(time.Since(s.Started)), clock(stage.Expect))
	case s.Result.Outcome.OK():
		mark, style, news = "✓", green, ending(s.Result)
	default:
		mark, style, news = "✗", red, ending(s.Result)
	}
	left := fmt.Sprintf(" %s %s", mark, shorten(stage.What, 46))
	text := left + strings.Repeat(" ", max(1, 50-len([]rune(left)))) + news
	text = shorten(text, width-1)
	rest := width - 1 - len([]rune(text)) - 2
	out := strings.Replace(text, mark, t.paint(style, mark), 1)
	if s.State == provision.Running && s.Last != nil && rest > 8 {
		out += "  " + t.paint(dim, shorten(s.Last(), rest))
	}
	return out
}

func (t *terminal) paint(style, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// clock shows a time as a clock does.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
