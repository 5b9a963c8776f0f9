// Package spans is the shape of the span files that telemetry writes beside the data, and reads them. It
// links nothing of OpenTelemetry, so that a small program can show a trace.
package spans

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Pattern matches the names of span files in a directory: one for each process, and the one before it
// was turned over. OfDaemons matches only those that each start of a daemon makes anew.
const (
	Pattern   = "spans-*.jsonl*"
	OfDaemons = "spans-[0-9]*.jsonl*"
)

// maxLine bounds a line that is read, in bytes; a longer one is passed over.
const maxLine = 1 << 20

// Span is one span as it lies in the file: a line of JSON.
type Span struct {
	Trace   string            `json:"trace"`
	ID      string            `json:"id"`
	Parent  string            `json:"parent,omitempty"`
	Name    string            `json:"name"`
	Service string            `json:"service"`
	Start   time.Time         `json:"start"`
	End     time.Time         `json:"end"`
	Failed  string            `json:"failed,omitempty"` // a fault code
	Attrs   map[string]string `json:"attrs,omitempty"`
}

// Read gives the spans of one trace from every file in dir, by start time. A half-written line, as a
// killed process leaves it, is passed over.
func Read(dir, traceID string) ([]Span, error) {
	files, err := filepath.Glob(filepath.Join(dir, Pattern))
	if err != nil {
		return nil, err
	}
	var out []Span
	for _, p := range files {
		if out, err = readFile(p, traceID, out); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out, nil
}

func readFile(path, traceID string, out []Span) ([]Span, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) { // turned over or pruned since it was listed
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		var s Span
		if err == nil && json.Unmarshal(line, &s) == nil && s.Trace == traceID {
			out = append(out, s)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return out, err
		}
	}
}

// TraceOf gives the trace id of a W3C traceparent, empty where it is none.
func TraceOf(traceparent string) string {
	if !wellFormed(traceparent) {
		return ""
	}
	return traceparent[3:35]
}

// SpanOf gives the span id of a W3C traceparent, empty where it is none.
func SpanOf(traceparent string) string {
	if !wellFormed(traceparent) {
		return ""
	}
	return traceparent[36:52]
}

func wellFormed(traceparent string) bool {
	return len(traceparent) >= 55 && traceparent[2] == '-' && traceparent[35] == '-' && traceparent[52] == '-'
}
