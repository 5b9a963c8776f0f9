package runtime

import (
	"context"
	"errors"
	"os"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

// maxBatch bounds what is published before the first acknowledgement is waited for.
const maxBatch = 16

// publish sends the attempt's output from the spool until all of it, up to the end of each stream, was
// acknowledged. It sends at once what is there, and gathers what comes while it waits for the
// acknowledgements: a quiet command's line leaves immediately, a loud one's in large pieces.
//
// A stream on which nothing was written is not mentioned: most commands say nothing on one of them, and each message is
// on the disk before the attempt can end.
//
// After a restart it begins where the last acknowledgement was noted, so some chunks may be stored
// twice, at the same offsets; readers go by the offsets.
func (a *attempt) publish(ctx context.Context) {
	next, ended := map[spool.Stream]int64{}, map[spool.Stream]bool{}
	for _, st := range spool.All() {
		next[st] = a.spool.Published(st)
	}
	pause := a.s.cfg.timing.backoff
	for {
		changed := a.spool.Changed()
		chunks, err := a.pending(next, ended)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				a.log.Error("the spool can't be read; its output is no longer published", "error", err)
			}
			return
		}
		if len(chunks) == 0 {
			if len(ended) == len(spool.All()) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			continue
		}
		ask, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
		n, err := a.s.cfg.Output.Publish(ask, a.e.Item, chunks)
		cancel()
		a.published(chunks[:n], next, ended)
		if err == nil {
			pause = a.s.cfg.timing.backoff
			continue
		}
		if ctx.Err() != nil {
			return
		}
		a.log.Warn("output was not published; it is in the spool", "error", err, "again_in", pause)
		a.s.sleep(ctx, pause)
		pause = min(2*pause, a.s.cfg.timing.maxBackoff)
	}
}

// pending gives what is to be published next, in each stream's order.
func (a *attempt) pending(next map[spool.Stream]int64, ended map[spool.Stream]bool) ([]Chunk, error) {
	var chunks []Chunk
	for _, st := range spool.All() {
		at := next[st]
		for len(chunks) < maxBatch && !ended[st] {
			pos := a.spool.Position(st) // before the bytes: it only grows
			b := make([]byte, min(int64(schemas.MaxFrame), max(0, pos.Size-at)))
			n, err := a.spool.Read(st, at, b)
			if err != nil {
				return nil, err
			}
			c := Chunk{Stream: st, Offset: at, Data: b[:n], EOF: pos.Ended && at+int64(n) == pos.Size}
			if c.EOF && pos.Size == 0 { // it has no last chunk that would have to say so
				ended[st] = true
				break
			}
			if n == 0 && !c.EOF {
				break
			}
			chunks = append(chunks, c)
			at += int64(n)
			if c.EOF {
				break
			}
		}
	}
	return chunks, nil
}

// published notes what was acknowledged.
func (a *attempt) published(chunks []Chunk, next map[spool.Stream]int64, ended map[spool.Stream]bool) {
	for _, c := range chunks {
		next[c.Stream] = c.Offset + int64(len(c.Data))
		if c.EOF {
			ended[c.Stream] = true
		}
		if err := a.spool.SetPublished(c.Stream, next[c.Stream]); err != nil && !errors.Is(err, os.ErrClosed) {
			a.log.Warn("what was published can't be noted", "error", err)
		}
	}
}
