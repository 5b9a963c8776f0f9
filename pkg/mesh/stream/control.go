package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
)

// The protocol's own channels.
const (
	channelControl = "control"
	channelResult  = "result"
)

// MaxMessage is how many bytes a control message takes at most.
const MaxMessage = 64 << 10

// maxResult bounds the handler's result: one window, so that it never waits for a reader.
const maxResult = Window / 2

// Message is a typed word beside the bytes: resize, signal …
type Message struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value,omitempty"`
}

// result is what goes over the channel of that name: the last word of a handler.
type result struct {
	Value json.RawMessage   `json:"value,omitempty"`
	Fault *reset            `json:"fault,omitempty"`
	Ends  map[string]ending `json:"ends"` // of the server's other channels
}

// ending says after how many bytes a channel ends, and how: eof, or error where the handler left it
// open and failed.
type ending struct {
	At  int64  `json:"at"`
	End string `json:"end"`
}

// Send gives the other side a message. Messages arrive in order, but in no order with the bytes of
// other channels. It waits only if a window of messages was not received yet.
func (s *Session) Send(kind string, value any) error { return s.sendMessage(kind, value, false) }

func (s *Session) sendMessage(kind string, value any, greeting bool) error {
	v, err := json.Marshal(value)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "message %s: it is not JSON", kind)
	}
	b, err := json.Marshal(Message{Type: kind, Value: v})
	if err != nil {
		return err
	}
	if len(b) >= MaxMessage {
		return fault.New(fault.Invalid, "message %s of %d bytes: at most %d are possible", kind, len(b), MaxMessage)
	}
	s.mu.Lock()
	s.greeting = greeting && !s.openBy.IsZero()
	s.mu.Unlock()
	_, err = s.Channel(channelControl).Write(append(b, '\n'))
	return err
}

// Greet is Send of the first message of a handler that SpeaksFirst. It may wait a few milliseconds for what is said next, and
// goes out together with that: the client wakes up once for a command that ends soon.
func (s *Session) Greet(kind string, value any) error { return s.sendMessage(kind, value, true) }

// FlushMessages waits until the other side has received every message that was sent to it.
func (s *Session) FlushMessages(ctx context.Context) error {
	return s.Channel(channelControl).Flush(ctx)
}

// Receive waits for the other side's next message. io.EOF means that none will come. One goroutine at
// a time may receive.
func (s *Session) Receive(ctx context.Context) (Message, error) {
	c := s.Channel(channelControl)
	defer c.wakeWith(ctx)()
	line, err := c.line(ctx)
	if err != nil {
		return Message{}, err
	}
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fault.Wrap(err, fault.Invalid, "a control message is not JSON")
	}
	return m, nil
}

// line reads up to a newline. What a caller whose ctx ended had begun stays for the next one.
func (c *Channel) line(ctx context.Context) ([]byte, error) {
	c.s.mu.Lock()
	r := c.s.lines
	if r == nil {
		r = &lineReader{c: c}
		r.buf = bufio.NewReaderSize(r, lineBuffer)
		c.s.lines = r
	}
	c.s.mu.Unlock()
	r.ctx = ctx
	line, err := r.buf.ReadSlice('\n')
	r.part = append(r.part, line...)
	for errors.Is(err, bufio.ErrBufferFull) && len(r.part) <= MaxMessage {
		line, err = r.buf.ReadSlice('\n')
		r.part = append(r.part, line...)
	}
	switch {
	case len(r.part) > MaxMessage:
		return nil, fault.New(fault.Invalid, "a control message is longer than %d bytes", MaxMessage)
	case err == io.EOF && len(r.part) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	line, r.part = r.part, nil
	return line, nil
}

// lineBuffer holds most messages: every stream has one, of which most carry a message or two.
const lineBuffer = 512

// lineReader lets bufio read a channel under the caller's ctx.
type lineReader struct {
	c    *Channel
	ctx  context.Context // of the call to Receive that is going on
	buf  *bufio.Reader
	part []byte
}

func (r *lineReader) Read(p []byte) (int, error) { return r.c.read(r.ctx, p) }

// finish ends a server's side: every channel that the handler left open, then the result.
func (s *Session) finish(value any, err error) {
	out := s.Channel(channelResult)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	r, end := newResult(value, err)
	for name, c := range s.channels {
		c.in.drain()
		if c == out {
			continue
		}
		if c.out.end == "" {
			c.out.end = end
			c.out.told = c.out.next == c.out.written // by the result
			s.pump(c)
			c.cond.Broadcast()
		}
		r.Ends[name] = ending{At: c.out.written, End: c.out.end}
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // its parts are JSON already
	}
	s.finished = true
	out.out.write(b)
	s.closeWrite(out, endEOF)
	s.checkComplete()
}

func newResult(value any, err error) (r result, end string) {
	r.Ends = map[string]ending{}
	if err == nil {
		r.Value, err = json.Marshal(value)
		if len(r.Value) > maxResult {
			err = fault.New(fault.Exhausted, "the result of %d bytes is over the limit of %d", len(r.Value), maxResult)
		}
	}
	if err == nil {
		return r, endEOF
	}
	code, text := fault.Public(err)
	r.Value, r.Fault = nil, &reset{Code: string(code), Message: text}
	return r, endError
}

// takeResult applies the last word: how every channel ends, known or not.
func (s *Session) takeResult(c *Channel, now time.Time) error {
	b := make([]byte, c.in.received-c.in.consumed)
	c.in.read(b)
	if err := json.Unmarshal(b, &s.result); err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	for name, e := range s.result.Ends {
		ch, err := s.channel(name)
		if err != nil {
			return err
		}
		if err := ch.in.ends(e.End, e.At); err != nil {
			return fmt.Errorf("channel %s: %w", name, err)
		}
		if e.At > ch.in.received {
			s.askAgain(ch, now)
		}
	}
	s.finished = true
	for _, ch := range s.channels {
		if ch.in.end == "" { // the server never had it
			ch.in.end, ch.in.endAt = endEOF, ch.in.received
		}
		ch.cond.Broadcast()
	}
	return nil
}

// Result waits for the handler's result and decodes it into v, unless v is nil. The error is the
// handler's fault, or why the stream broke before. Bytes that are not read yet can be read after it.
func (s *Session) Result(ctx context.Context, v any) error {
	c := s.Channel(channelResult)
	defer c.wakeWith(ctx)()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.finished || !s.client {
		if s.over {
			return s.err
		}
		if ctx.Err() != nil {
			return fault.Wrap(ctx.Err(), fault.CodeOf(ctx.Err()), "the stream's result did not come in time")
		}
		c.cond.Wait()
	}
	if err := s.resultFault(); err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(s.result.Value, v); err != nil {
		return fault.Wrap(err, fault.Internal, "the stream's result is not what was expected")
	}
	return nil
}

// resultFault is the handler's fault, if it failed.
func (s *Session) resultFault() error {
	if f := s.result.Fault; f != nil {
		return fault.FromWire(f.Code, f.Message)
	}
	return nil
}
