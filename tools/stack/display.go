package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/weftmesh/weft/tools/stack/internal/provision"
)

// display shows people what is happening: lines that change on a terminal, plain lines elsewhere.
type display interface {
	provision.Watcher
	// begin says what is about to happen, before the first change.
	begin(headline string, stages []provision.Stage)
	// end stops showing changes; what was shown stays.
	end()
}

// newDisplay picks the display that out can show.
func newDisplay(out *os.File) display {
	if term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
		return newTerminal(out)
	}
	return newPlain(out)
}

// plain writes a line when something starts and when it ends, and one in a while in between, so that
// neither a reader nor a CI machine takes it for dead.
type plain struct {
	out  io.Writer
	mu   sync.Mutex
	busy map[string]provision.Status
	stop chan struct{}
	done chan struct{}
}

// heartbeat is the time between two signs of life of a plain display.
const heartbeat = 30 * time.Second

func newPlain(out io.Writer) *plain {
	return &plain{out: out, busy: map[string]provision.Status{}, stop: make(chan struct{}), done: make(chan struct{})}
}

func (p *plain) begin(headline string, _ []provision.Stage) {
	fmt.Fprintln(p.out, headline)
	go p.beat()
}

func (p *plain) beat() {
	defer close(p.done)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			for name, s := range p.busy {
				fmt.Fprintf(p.out, "  ...   %-11s %s of about %s: %s\n", name, rounded(time.Since(s.Started)), rounded(s.Stage.Expect), shorten(s.Last(), 70))
			}
			p.mu.Unlock()
		}
	}
}

func (p *plain) Changed(s provision.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, s.Stage.Name)
	switch s.State {
	case provision.Running:
		p.busy[s.Stage.Name] = s
		fmt.Fprintf(p.out, "  start %-11s %s, about %s\n", s.Stage.Name, s.Stage.What, rounded(s.Stage.Expect))
	case provision.Done:
		mark := map[bool]string{true: "ok   ", false: "FAIL "}[s.Result.Outcome.OK()]
		fmt.Fprintf(p.out, "  %s %-11s %s: %s\n", mark, s.Stage.Name, s.Stage.What, ending(s.Result))
	case provision.Waiting:
	}
}

func (p *plain) end() {
	close(p.stop)
	<-p.done
}

// ending is how a stage ended, in a few words.
func ending(r provision.Result) string {
	switch r.Outcome {
	case provision.Cached:
		return "already there"
	case provision.Installed:
		if r.Stage.Name == "packages" {
			return "already there"
		}
		return "uses the installed " + r.Where
	case provision.Made:
		verb := "built"
		if len(r.Stage.Files) == 0 {
			verb = "installed"
		}
		return fmt.Sprintf("%s in %s", verb, rounded(r.Took))
	case provision.Skipped:
		return "not tried, " + r.Err.Error()
	default:
		if errors.Is(r.Err, context.Canceled) {
			return "interrupted"
		}
		if r.Took > 0 {
			return "failed after " + rounded(r.Took)
		}
		return "failed"
	}
}

// shorten cuts text to what fits into width columns. Names of Go packages keep their end.
func shorten(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	runes := []rune(text)
	switch {
	case len(runes) <= width:
		return text
	case width < 2:
		return ""
	case !strings.Contains(text, " "):
		return "…" + string(runes[len(runes)-width+1:])
	}
	return string(runes[:width-1]) + "…"
}
