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
	writer   int // the newest of those who have begun; no other may write
}

// endOfTransmission is what a person types at a terminal to end the input.
const endOfTransmission = 0x04

var (
	errNoStdin     = fault.New(fault.Conflict, "the process was started without standard input")
	errStdinClosed = fault.New(fault.Conflict, "the process's standard input is closed")
	errStolen      = fault.New(fault.Conflict, "another writer took over the process's standard input")
)

// begin takes the input over from an earlier writer, which may be stuck in a full pipe, and says how
// much was accepted so far.
func (s *stdin) begin() (writer int, accepted uint64, err error) {
	if s == nil {
		return 0, 0, errNoStdin
	}
	_ = s.file.SetWriteDeadline(time.Unix(1, 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.file.SetWriteDeadline(time.Time{})
	s.writer++
	return s.writer, s.accepted, nil
}

// write takes what of b, which starts at offset, was not accepted before. errStolen means that
// another writer took over.
func (s *stdin) write(writer int, offset uint64, b []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writer != s.writer {
		return s.accepted, errStolen
	}
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

// end closes the input, as its writer wants.
func (s *stdin) end(writer int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if writer != s.writer {
		return errStolen
	}
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
