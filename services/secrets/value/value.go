// Package value holds the type of everything that must not be seen: secret values, tokens and keys.
//
// A Value prints as "[redacted]" wherever it is formatted, logged or marshalled, also inside other
// structs, so that a careless log line or error shows nothing. Only Reveal and Bytes give what is
// inside; a reader finds every place that uses a secret by looking for these two names.
package value

import (
	"fmt"
	"io"
	"log/slog"
)

// Redacted is what is shown instead of a value.
const Redacted = "[redacted]"

// Value is a secret. The zero Value is empty. The bytes are behind a closure because fmt and other
// users of reflection look through pointers of unexported fields, where no method of ours is called;
// they can't look into a function. It is not wiped: copies made on the way here would stay anyway.
type Value struct{ bytes func() []byte }

// Of makes a Value of s.
func Of(s string) Value { return OfBytes([]byte(s)) }

// OfBytes makes a Value that takes over b; the caller must not change b afterwards.
func OfBytes(b []byte) Value {
	if len(b) == 0 {
		return Value{}
	}
	return Value{func() []byte { return b }}
}

// Reveal gives the secret as a string.
func (v Value) Reveal() string { return string(v.Bytes()) }

// Bytes gives the secret; the caller must not change it.
func (v Value) Bytes() []byte {
	if v.bytes == nil {
		return nil
	}
	return v.bytes()
}

// Len is the length in bytes.
func (v Value) Len() int { return len(v.Bytes()) }

// Empty reports whether there is nothing in it.
func (v Value) Empty() bool { return v.Len() == 0 }

// String redacts.
func (Value) String() string { return Redacted }

// GoString redacts, for %#v.
func (Value) GoString() string { return Redacted }

// Format redacts for every verb, also %x and %d, which would not call String.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Redacted) }

// LogValue redacts, for log/slog.
func (Value) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalJSON redacts.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + Redacted + `"`), nil }

// MarshalText redacts, for encoders that take text.
func (Value) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
