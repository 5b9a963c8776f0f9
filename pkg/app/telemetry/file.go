package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/weftmesh/weft/pkg/app/spans"
)

// maxFile is where a span file is turned over, in bytes; the one before it is kept.
const maxFile = 32 << 20

// file is a span exporter that appends to spans-<pid>.jsonl.
type file struct {
	mu   sync.Mutex
	path string
	f    *os.File
	size int64
}

func newFile(dir string) (*file, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	e := &file{path: filepath.Join(dir, fmt.Sprintf("spans-%d.jsonl", os.Getpid()))}
	prune(dir)
	return e, e.open()
}

// prune keeps the newest eight span files: every start of the program makes one.
func prune(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, spans.OfDaemons))
	if len(old) < 8 {
		return
	}
	age := func(p string) time.Time {
		if st, err := os.Stat(p); err == nil {
			return st.ModTime()
		}
		return time.Time{}
	}
	sort.Slice(old, func(i, j int) bool { return age(old[i]).Before(age(old[j])) })
	for _, p := range old[:len(old)-7] {
		_ = os.Remove(p)
	}
}

func (e *file) open() error {
	f, err := os.OpenFile(e.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	e.f, e.size = f, st.Size()
	return nil
}

// ExportSpans appends the spans.
func (e *file) ExportSpans(_ context.Context, ended []trace.ReadOnlySpan) error {
	var b []byte
	for _, s := range ended {
		line, err := json.Marshal(toSpan(s))
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.size > maxFile {
		_ = e.f.Close()
		if err := os.Rename(e.path, e.path+".1"); err != nil {
			return err
		}
		if err := e.open(); err != nil {
			return err
		}
	}
	n, err := e.f.Write(b)
	e.size += int64(n)
	return err
}

// Shutdown closes the file.
func (e *file) Shutdown(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.f.Close()
}

func toSpan(s trace.ReadOnlySpan) spans.Span {
	out := spans.Span{Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(),
		Name: s.Name(), Start: s.StartTime(), End: s.EndTime(), Failed: s.Status().Description}
	if s.Parent().SpanID().IsValid() {
		out.Parent = s.Parent().SpanID().String()
	}
	if v, ok := s.Resource().Set().Value("service.name"); ok {
		out.Service = v.AsString()
	}
	for _, a := range s.Attributes() {
		if out.Attrs == nil {
			out.Attrs = map[string]string{}
		}
		out.Attrs[string(a.Key)] = a.Value.String()
	}
	return out
}
