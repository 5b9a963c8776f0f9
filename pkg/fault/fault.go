// Package fault is the one form in which an operation fails: a code of the closed set, a sentence
// that tells the caller what to do, and a cause that stays on this side of the wire.
package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftmesh/weft/schemas"
)

// Code is the reason, see schemas.Code.
type Code = schemas.Code

// The closed set, as in schemas.
const (
	Invalid     = schemas.Invalid
	NotFound    = schemas.NotFound
	Conflict    = schemas.Conflict
	Denied      = schemas.Denied
	Exhausted   = schemas.Exhausted
	Unavailable = schemas.Unavailable
	Deadline    = schemas.Deadline
	Internal    = schemas.Internal
)

// Error is a failure with its code. Message crosses the wire; Cause never does.
type Error struct {
	Code    Code
	Message string
	Cause   error
}

// Error gives the sentence and, for the log, the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New is a failure without a cause.
func New(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap is a failure that err caused. A nil err gives nil.
func Wrap(err error, code Code, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: err}
}

// CodeOf is the code of err: of the outermost Error in its chain, Deadline and Unavailable for the
// context's own errors, Internal for everything else, and empty for nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return Deadline
	case errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Internal
}

// Is reports whether err carries code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }

// Public is what may be sent of err: its code and its sentence, without any cause. What has no code
// of its own is internal, and its text is withheld.
func Public(err error) (Code, string) {
	var e *Error
	if errors.As(err, &e) {
		return e.Code, e.Message
	}
	switch code := CodeOf(err); code {
	case Deadline:
		return code, "it took longer than allowed; try again, or allow more time"
	case Unavailable:
		return code, "the service is stopping; try again"
	default:
		return Internal, "internal error; the service's log has the cause"
	}
}

// FromWire makes the failure that a reply's headers tell of. An unknown code counts as internal.
func FromWire(code, message string) error {
	c := Code(code)
	if !c.Valid() {
		c = Internal
	}
	return &Error{Code: c, Message: message}
}
