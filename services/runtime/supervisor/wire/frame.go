package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Type says what a frame's body is.
type Type uint8

// Frame types. Offsets are 8 bytes, big-endian.
const (
	TypeRequest  Type = 1  // JSON Request, first on every stream
	TypeReply    Type = 2  // JSON Reply
	TypeError    Type = 3  // JSON Error; the last frame of its direction
	TypePart     Type = 4  // the next part of a JSON message that is too long for one frame
	TypeStdout   Type = 5  // offset, bytes
	TypeStderr   Type = 6  // offset, bytes
	TypeExit     Type = 7  // JSON Exit; the last frame of its direction
	TypeAck      Type = 8  // stdout offset, stderr offset
	TypeForget   Type = 9  // empty: the process's record is no longer wanted
	TypeData     Type = 10 // bytes
	TypeEOF      Type = 11 // empty: no more data in this direction
	TypeAccepted Type = 12 // offset: stdin was taken up to here
	TypeStdin    Type = 13 // offset, bytes
	typeEnd      Type = 14
)

const (
	// HeaderSize of a frame: the type, and 24 bits of length.
	HeaderSize = 4
	// MaxFrame is the size of the largest frame with its header.
	MaxFrame = 64 << 10
	// MaxBody is the largest body of a frame.
	MaxBody = MaxFrame - HeaderSize
	// OffsetSize is what an offset takes of a body.
	OffsetSize = 8
	// MaxData is the most that a frame with an offset carries.
	MaxData = MaxBody - OffsetSize
	// MaxMessage is the longest JSON message, over all its parts.
	MaxMessage = 8 << 20
)

// Violations of the protocol. After one, the stream is of no more use.
var (
	ErrFrameType   = errors.New("frame of an unknown type")
	ErrFrameLength = errors.New("frame longer than 64 KiB")
	ErrFrameShort  = errors.New("frame too short for its type")
	ErrMessageLong = errors.New("message longer than 8 MiB")
	ErrUnexpected  = errors.New("frame of a type that is not expected here")
)

// PutHeader writes a frame's header into the first HeaderSize bytes of b.
func PutHeader(b []byte, t Type, bodyLen int) {
	binary.BigEndian.PutUint32(b, uint32(t)<<24|uint32(bodyLen))
}

func parseHeader(b [HeaderSize]byte) (Type, int, error) {
	t, n := Type(b[0]), int(b[1])<<16|int(b[2])<<8|int(b[3])
	if t == 0 || t >= typeEnd {
		return 0, 0, ErrFrameType
	}
	if n > MaxBody {
		return 0, 0, ErrFrameLength
	}
	return t, n, nil
}

// WriteFrame writes one frame with a single Write. The body is at most MaxBody long.
func WriteFrame(w io.Writer, t Type, body []byte) error {
	if len(body) > MaxBody {
		return ErrFrameLength
	}
	b := make([]byte, HeaderSize+len(body))
	PutHeader(b, t, len(body))
	copy(b[HeaderSize:], body)
	_, err := w.Write(b)
	return err
}

// WriteOffsets writes a frame whose body is offsets only: TypeAck or TypeAccepted.
func WriteOffsets(w io.Writer, t Type, offsets ...uint64) error {
	b := make([]byte, HeaderSize, HeaderSize+2*OffsetSize)
	for _, o := range offsets {
		b = binary.BigEndian.AppendUint64(b, o)
	}
	PutHeader(b, t, len(b)-HeaderSize)
	_, err := w.Write(b)
	return err
}

// WriteMessage writes v as JSON in as many frames as it takes, the last of type t.
func WriteMessage(w io.Writer, t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxMessage {
		return ErrMessageLong
	}
	for len(b) > MaxBody {
		if err := WriteFrame(w, TypePart, b[:MaxBody]); err != nil {
			return err
		}
		b = b[MaxBody:]
	}
	return WriteFrame(w, t, b)
}

// Frame is one frame as it was read.
type Frame struct {
	Type Type
	Body []byte // valid until the reader's next call
}

// Offset splits the body of a frame that begins with one.
func (f Frame) Offset() (uint64, []byte, error) {
	if len(f.Body) < OffsetSize {
		return 0, nil, ErrFrameShort
	}
	return binary.BigEndian.Uint64(f.Body), f.Body[OffsetSize:], nil
}

// Reader reads frames.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads one frame. io.EOF means that the stream ended between two frames.
func (r *Reader) Next() (Frame, error) {
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return Frame{}, err
	}
	t, n, err := parseHeader(h)
	if err != nil {
		return Frame{}, err
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, max(n, min(2*cap(r.buf), MaxBody), 512))
	}
	body := r.buf[:n]
	if _, err := io.ReadFull(r.r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{t, body}, nil
}

// Message reads frames up to one that is not TypePart and gives that one's type with the body of all.
func (r *Reader) Message() (Frame, error) {
	var whole []byte
	for {
		f, err := r.Next()
		if err != nil {
			return Frame{}, err
		}
		if f.Type != TypePart && whole == nil {
			return f, nil
		}
		if len(f.Body) == 0 && f.Type == TypePart {
			return Frame{}, ErrFrameShort // no end is in sight with such
		}
		if len(whole)+len(f.Body) > MaxMessage {
			return Frame{}, ErrMessageLong
		}
		whole = append(whole, f.Body...)
		if f.Type != TypePart {
			return Frame{f.Type, whole}, nil
		}
	}
}

// Decode reads a JSON body into v.
func (f Frame) Decode(v any) error {
	if err := json.Unmarshal(f.Body, v); err != nil {
		return fmt.Errorf("decode frame of type %d: %w", f.Type, err)
	}
	return nil
}
