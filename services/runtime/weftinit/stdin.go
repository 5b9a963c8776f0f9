package weftinit

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
)

// stdin is our end of a process's standard input. Its bytes are counted, so that a writer whose
// connection broke goes on where the process stopped taking.
type stdin struct {
	file     *os.File
	terminal bool

	mu       sync.Mutex // held while writing
	accepted uint64
	closed   bool
}

// endOfTransmission is what a person types at a terminal to end the input.
const endOfTransmission = 0x04

var (
	errNoStdin     = fault.New(fault.Conflict, "the process was started without standard input")
	errStdinClosed = fault.New(fault.Conflict, "the process's standard input is closed")
)

// begin takes the input over from an earlier writer, which may be stuck in a full pipe, and says how
// much was accepted from it.
func (s *stdin) begin() (uint64, error) {
	if s == nil {
		return 0, errNoStdin
	}
	_ = s.file.SetWriteDeadline(time.Unix(1, 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.file.SetWriteDeadline(time.Time{})
	return s.accepted, nil
}

// write takes what of b, which starts at offset, was not accepted before. errStolen means that
// another writer took over.
func (s *stdin) write(offset uint64, b []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.accepted, errStdinClosed
	}
	if offset > s.accepted {
		return s.accepted, fault.New(fault.Invalid, "stdin at offset %d: %d was expected", offset, s.accepted)
	}
	skip := s.accepted - offset
	if skip >= uint64(len(b)) {
		return s.accepted, nil
	}
	n, err := s.file.Write(b[skip:])
	s.accepted += uint64(n)
	switch {
	case err == nil:
		return s.accepted, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.accepted, errStolen
	}
	s.closeLocked()
	return s.accepted, errStdinClosed
}

var errStolen = errors.New("another writer took over the standard input")

// end closes the input, as its writer wants.
func (s *stdin) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.terminal {
		_, err := s.file.Write([]byte{endOfTransmission})
		return err
	}
	s.closeLocked()
	return nil
}

// close is for the end of the process.
func (s *stdin) close() {
	if s == nil {
		return
	}
	_ = s.file.SetWriteDeadline(time.Unix(1, 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *stdin) closeLocked() {
	if s.closed {
		return
	}
	s.closed = true
	if !s.terminal { // a terminal's master is also its output
		_ = s.file.Close()
	}
}
