package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	big := bytes.Repeat([]byte("x"), MaxBody)
	require.NoError(t, WriteFrame(&b, TypeData, []byte("one")))
	require.NoError(t, WriteFrame(&b, TypeEOF, nil))
	require.NoError(t, WriteFrame(&b, TypeData, big))
	require.NoError(t, WriteOffsets(&b, TypeAck, 1, 1<<63))
	require.ErrorIs(t, WriteFrame(&b, TypeData, make([]byte, MaxBody+1)), ErrFrameLength)
	r := NewReader(&b)
	for _, want := range []Frame{{TypeData, []byte("one")}, {TypeEOF, []byte{}}, {TypeData, big}} {
		f, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, f)
	}
	f, err := r.Next()
	require.NoError(t, err)
	at, rest, err := f.Offset()
	require.NoError(t, err)
	require.EqualValues(t, 1, at)
	require.Len(t, rest, OffsetSize)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestLongMessages(t *testing.T) {
	in := Request{Op: OpStart, Spec: &ProcessSpec{Argv: Texts(strings.Repeat("a", 1<<20), "\xff", "\x00\u2028<&>")}}
	var b bytes.Buffer
	require.NoError(t, WriteMessage(&b, TypeRequest, in))
	f, err := NewReader(&b).Message()
	require.NoError(t, err)
	require.Equal(t, TypeRequest, f.Type)
	var out Request
	require.NoError(t, f.Decode(&out))
	require.Equal(t, in, out)

	require.ErrorIs(t, WriteMessage(io.Discard, TypeReply, strings.Repeat("x", MaxMessage)), ErrMessageLong)
	endless := NewReader(&repeat{frame: append([]byte{byte(TypePart), 0, 0xff, 0}, make([]byte, 0xff00)...)})
	_, err = endless.Message()
	require.ErrorIs(t, err, ErrMessageLong)
}

// repeat is a reader that gives one frame for ever.
type repeat struct {
	frame []byte
	rest  []byte
}

func (r *repeat) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = r.frame
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestText(t *testing.T) {
	for _, s := range []string{"", "plain", "é\u2028\u0000", "\xff\xfe", "\xed\xa0\x80", `{"b64":"x"}`, string([]byte{0xc3})} {
		b, err := json.Marshal(Text(s))
		require.NoError(t, err)
		var back Text
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, s, string(back))
	}
	for _, bad := range []string{`1`, `{}`, `{"b64":"!"}`, `[]`, `null x`} {
		var back Text
		require.Error(t, json.Unmarshal([]byte(bad), &back), bad)
	}
}

// FuzzReader reads anything: it must neither panic nor take more memory than one message may, and
// what it reads it must be able to write the same way.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	_ = WriteMessage(&b, TypeRequest, Request{Op: OpStart, Spec: &ProcessSpec{Argv: Texts("true", "\xff")}})
	_ = WriteFrame(&b, TypeStdout, make([]byte, 20))
	_ = WriteOffsets(&b, TypeAck, 1, 2)
	f.Add(b.Bytes())
	f.Add([]byte{1, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{4, 0, 0, 1, 'x', 1, 0, 0, 1, 'y'})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		for {
			m, err := r.Message()
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrFrameType) ||
					errors.Is(err, ErrFrameLength) || errors.Is(err, ErrFrameShort) || errors.Is(err, ErrMessageLong), "%v", err)
				return
			}
			require.NotEqual(t, TypePart, m.Type)
			require.Less(t, m.Type, typeEnd)
			_, _, _ = m.Offset()
			var req Request
			if m.Decode(&req) == nil && req.Spec != nil {
				_ = req.Spec.Check()
			}
			var reply Reply
			_ = m.Decode(&reply)
			if len(m.Body) <= MaxBody {
				var again bytes.Buffer
				require.NoError(t, WriteFrame(&again, m.Type, m.Body))
				back, err := NewReader(&again).Next()
				require.NoError(t, err)
				require.True(t, bytes.Equal(m.Body, back.Body))
			}
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("plain")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(Text(s))
		require.NoError(t, err)
		var back Text
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, s, string(back))
	})
}
