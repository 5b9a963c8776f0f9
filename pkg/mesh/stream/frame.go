package stream

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Headers of the protocol, beside schemas.HeaderStream and schemas.HeaderOffset.
const (
	HeaderFrame = "Weft-Frame"     // the kind of a frame
	HeaderID    = "Weft-Stream-Id" // of an open frame: 20 characters of base32hex, made by the client
	HeaderEnd   = "Weft-End"       // of a data frame that is its channel's last: eof or error
	HeaderEnded = "Weft-Ended"     // of an open frame: channels on which the client sends nothing, with commas
)

// Kinds of frame.
const (
	frameOpen   = "open"
	frameOpened = "opened"
	frameData   = "data"
	frameStatus = "status"
	frameReset  = "reset"
)

// MaxFrame is how many bytes of a channel one frame carries at most, Window how many may be in flight
// on a channel in one direction, MaxChannels how many channels a stream has, its own two among them.
const (
	MaxFrame    = schemas.MaxFrame
	Window      = schemas.StreamWindow
	MaxChannels = 10
)

// frame is one decoded message of a stream.
type frame struct {
	kind    string
	channel string // data
	offset  int64  // data
	end     string // data: how the channel ends after it, if it does
	body    []byte // data, open
	status  status
	reset   reset
}

// opened is the body of the reply to an open request.
type opened struct {
	Subject string `json:"subject"` // to which the client sends its frames
	Window  int64  `json:"window"`  // bytes
}

// status says where its sender is in each channel that it mentions.
type status struct {
	Channels map[string]progress `json:"channels,omitempty"`
	Ask      bool                `json:"ask,omitempty"` // answer with your status
}

// progress is one channel in both directions, as the sender of the status sees it. Offsets are bytes
// from the beginning of the stream.
type progress struct {
	Sent     int64  `json:"sent"`            // sent so far
	End      string `json:"end,omitempty"`   // eof or error, when nothing will follow what was sent
	Received int64  `json:"received"`        // received so far without a gap: this is acknowledged
	Limit    int64  `json:"limit"`           // the other side may send up to here
	Ended    bool   `json:"ended,omitempty"` // the other side's end has been received
	Again    bool   `json:"again,omitempty"` // send again from Received
}

// How a direction of a channel ended.
const (
	endEOF   = "eof"
	endError = "error" // the handler failed; the result says why
)

// reset is the body of a reset frame.
type reset struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// decode reads a frame that came from outside. Everything in it is checked as far as it can be
// without the stream's state.
func decode(h nats.Header, body []byte) (frame, error) {
	f := frame{kind: h.Get(HeaderFrame)}
	switch f.kind {
	case frameData:
		f.channel, f.body = h.Get(schemas.HeaderStream), body
		if err := checkChannel(f.channel); err != nil {
			return frame{}, err
		}
		n, err := parseOffset(h.Get(schemas.HeaderOffset))
		if err != nil {
			return frame{}, err
		}
		f.offset, f.end = n, h.Get(HeaderEnd)
		if err := checkEnd(f.end); err != nil {
			return frame{}, err
		}
		if len(body) == 0 || len(body) > MaxFrame {
			return frame{}, fmt.Errorf("data frame of %d bytes must have 1 to %d", len(body), MaxFrame)
		}
		return f, nil
	case frameStatus:
		if err := json.Unmarshal(body, &f.status); err != nil {
			return frame{}, fmt.Errorf("status frame: %w", err)
		}
		return f, f.status.check()
	case frameReset:
		if err := json.Unmarshal(body, &f.reset); err != nil {
			return frame{}, fmt.Errorf("reset frame: %w", err)
		}
		return f, nil
	case frameOpen, frameOpened:
		f.body = body
		return f, nil
	}
	return frame{}, fmt.Errorf("frame of unknown kind %.32q", f.kind)
}

func (s status) check() error {
	if len(s.Channels) > MaxChannels {
		return fmt.Errorf("status of %d channels, at most %d are possible", len(s.Channels), MaxChannels)
	}
	for name, p := range s.Channels {
		if err := checkChannel(name); err != nil {
			return err
		}
		if p.Sent < 0 || p.Received < 0 || p.Limit < p.Received {
			return fmt.Errorf("status of channel %q: sent %d, received %d, limit %d contradict one another", name, p.Sent, p.Received, p.Limit)
		}
		if err := checkEnd(p.End); err != nil {
			return fmt.Errorf("status of channel %q: %w", name, err)
		}
	}
	return nil
}

func checkEnd(end string) error {
	if end != "" && end != endEOF && end != endError {
		return fmt.Errorf("unknown end %.32q", end)
	}
	return nil
}

// checkChannel refuses what is no channel's name: a DNS label of at most 32 bytes.
func checkChannel(name string) error {
	if err := schemas.CheckName("channel", name); err != nil {
		return err
	}
	if len(name) > 32 {
		return fmt.Errorf("channel %q is longer than 32 bytes", name)
	}
	return nil
}

// parseOffset takes decimal digits only: no sign, no leading zero, so that there is one spelling.
func parseOffset(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("offset %.32q is not a decimal number", s)
	}
	return n, nil
}

// dataHeader makes the headers of a channel's data frames; setOffset and setEnd change them for the next one.
// They are encoded before Publish returns, so one map per channel is enough.
func dataHeader(channel string) nats.Header {
	return nats.Header{HeaderFrame: {frameData}, schemas.HeaderStream: {channel}, schemas.HeaderOffset: {"0"}}
}

func setOffset(h nats.Header, offset int64) {
	h[schemas.HeaderOffset][0] = strconv.FormatInt(offset, 10)
}

func setEnd(h nats.Header, end string) {
	if end == "" {
		delete(h, HeaderEnd)
		return
	}
	h[HeaderEnd] = []string{end}
}

func message(kind string, body any) *nats.Msg {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // structs of ours always marshal
	}
	return &nats.Msg{Header: nats.Header{HeaderFrame: {kind}}, Data: b}
}

func resetMessage(err error) *nats.Msg {
	code, text := fault.Public(err)
	return message(frameReset, reset{Code: string(code), Message: text})
}
