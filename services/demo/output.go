package demo

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Streams of output.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// transcript is what was seen of one stream of an attempt's output, and what was wrong with it.
type transcript struct {
	next    int64 // offset of the next byte
	whole   []byte
	partial []byte   // of the last line
	wrong   []string // gaps and repeats
}

// take adds a chunk and gives the lines that it completes.
func (t *transcript) take(c workspace.OutputChunk) []string {
	if c.Gap > 0 {
		t.wrong = append(t.wrong, fmt.Sprintf("%d bytes missing before offset %d", c.Gap, c.Offset))
	} else if c.Offset != t.next {
		t.wrong = append(t.wrong, fmt.Sprintf("offset %d came where %d was due", c.Offset, t.next))
	}
	t.next = c.Offset + int64(len(c.Data))
	t.whole = append(t.whole, c.Data...)
	t.partial = append(t.partial, c.Data...)
	var lines []string
	for {
		line, rest, ok := bytes.Cut(t.partial, []byte("\n"))
		if !ok {
			return lines
		}
		lines, t.partial = append(lines, string(line)), bytes.Clone(rest)
	}
}

// step is a numbered line of an analyst.
type step struct {
	number, of int
	at         time.Time // when it was written, by the sandbox's clock, which is the host's
}

var stepLine = regexp.MustCompile(`^(\d+)/(\d+) read \d+ of \d+ files at (\S+)$`)

func parseStep(line string) (step, bool) {
	m := stepLine.FindStringSubmatch(line)
	if m == nil {
		return step{}, false
	}
	number, err := strconv.Atoi(m[1])
	of, err2 := strconv.Atoi(m[2])
	at, err3 := time.Parse(time.RFC3339, m[3])
	return step{number, of, at}, err == nil && err2 == nil && err3 == nil
}

// steps gives the numbered lines of an output.
func steps(whole []byte) []step {
	var out []step
	for line := range bytes.Lines(whole) {
		if s, ok := parseStep(string(bytes.TrimRight(line, "\n"))); ok {
			out = append(out, s)
		}
	}
	return out
}

// unbroken says what is wrong with the numbers: nothing if they are 1 to of, each once and in order.
func unbroken(ss []step) error {
	if len(ss) == 0 {
		return fmt.Errorf("it has no numbered line")
	}
	for i, s := range ss {
		if s.number != i+1 {
			return fmt.Errorf("line %d is numbered %d", i+1, s.number)
		}
	}
	if last := ss[len(ss)-1]; last.number != last.of {
		return fmt.Errorf("it ends with line %d of %d", last.number, last.of)
	}
	return nil
}

// between counts the lines that were written after from and before to.
func between(ss []step, from, to time.Time) int {
	n := 0
	for _, s := range ss {
		if s.at.After(from) && s.at.Before(to) {
			n++
		}
	}
	return n
}
