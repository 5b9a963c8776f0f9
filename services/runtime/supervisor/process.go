package supervisor

import (
	"context"
	"syscall"
	"time"
)

// Process is one process in a sandbox, followed from where it was started or attached.
type Process struct{}

// Event is one piece of output, or the end.
type Event struct {
	Stream Stream
	Offset uint64 // of the first byte of Data
	Data   []byte // valid until the next call of Next
	// Dropped is how many bytes before Offset were lost to a full ring.
	Dropped uint64
	// Exit is set in the last event, which has no Data.
	Exit *Exit
}

// ID of the process.
func (p *Process) ID() string

// PID inside the sandbox; 0 if it never started.
func (p *Process) PID() int

// Next gives the next event, in order of each stream, and io.EOF after the exit. It reconnects as
// often as it must. It is the reader's pace that holds back the process (see OutputMode).
func (p *Process) Next(ctx context.Context) (Event, error)

// Ack says that all output before these offsets is safe: a lossless process may forget it. It never
// blocks; it is repeated after a reconnect. Offsets that go back are ignored.
func (p *Process) Ack(at Offsets)

// Wait returns when the process has ended and its output is complete. It needs no reading beside
// it, but a process that is held back by its unread output does not end.
func (p *Process) Wait(ctx context.Context) (Exit, error)

// WriteStdin returns when the process's stdin has taken b, exactly once even across reconnects.
// conflict: stdin is closed.
func (p *Process) WriteStdin(ctx context.Context, b []byte) error

// CloseStdin ends standard input: end of file for a pipe, ^D for a terminal.
func (p *Process) CloseStdin(ctx context.Context) error

// Signal sends sig. A process that has ended is conflict; the group and tree may outlive it.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal, target Target) error

// Stop ends the whole tree: SIGTERM, and after grace SIGKILL (at once if grace is 0), until none is
// left. The Exit's reason is killed. It returns when the tree is gone or could not be killed (Exit.Leftovers).
func (p *Process) Stop(ctx context.Context, grace time.Duration) error

// Resize sets the terminal's size.
func (p *Process) Resize(ctx context.Context, size Size) error

// Forget removes the record of an ended process and its kept output, and closes p.
func (p *Process) Forget(ctx context.Context) error

// Close stops following. The process goes on.
func (p *Process) Close() error
