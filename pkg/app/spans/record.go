package spans

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ownFile takes the spans of programs that live for one command only; a daemon's exporter has a file for each process.
const ownFile = "spans-commands.jsonl"

// maxOwn is where that file is turned over, in bytes; the one before it is kept.
const maxOwn = 8 << 20

// Begin starts a span under a W3C traceparent, or a new trace where that is empty or malformed. The traceparent
// that it gives is what everything that the span causes goes on with. It ends, and is kept, with Record.
func Begin(name, service, traceparent string) (s Span, next string) {
	id := func(n int) string {
		b := make([]byte, n)
		_, _ = rand.Read(b)
		return hex.EncodeToString(b)
	}
	s = Span{Trace: TraceOf(traceparent), Parent: SpanOf(traceparent), ID: id(8), Name: name, Service: service, Start: time.Now()}
	if s.Trace == "" {
		s.Trace = id(16)
	}
	return s, "00-" + s.Trace + "-" + s.ID + "-01"
}

// Record appends an ended span to the files in dir. A directory that is not there is no error: nobody keeps spans.
// Several processes may append at once: each line is one write.
func Record(dir string, s Span) error {
	path := filepath.Join(dir, ownFile)
	if st, err := os.Stat(path); err == nil && st.Size() > maxOwn {
		if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}
