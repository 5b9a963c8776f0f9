package weftinit

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// chunks are what outputs are read into, and framed in. The room before the data is for the frame.
var chunks = sync.Pool{New: func() any { b := make([]byte, wire.MaxFrame); return &b }}

// pump moves one output into its ring until its end. It runs in a goroutine of its own. What is
// left to come after the process's end, from others that hold the pipe, is thrown away.
func (p *process) pump(f *os.File, stream wire.Stream) {
	grown := false
	for {
		n, err := p.pumpOnce(f, stream)
		if n == wire.MaxFrame && !grown {
			// A busy writer: a larger pipe halves the switches between it and us. Best effort.
			grown = true
			growPipe(f)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(f, stream)
			p.complete()
			p.init.discard(f)
		} else { // end of file, or EIO of a terminal that nobody has open
			p.complete()
		}
		if f != p.tty {
			_ = f.Close()
		}
		return
	}
}

// pumpOnce reads once. It takes a buffer only when there is something to read: hundreds of idle
// processes must not hold one each.
func (p *process) pumpOnce(f *os.File, stream wire.Stream) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		b := chunks.Get().(*[]byte)
		defer chunks.Put(b)
		for {
			n, rerr = unix.Read(int(fd), *b)
			if !errors.Is(rerr, unix.EINTR) {
				break
			}
		}
		if errors.Is(rerr, unix.EAGAIN) {
			return false
		}
		if n > 0 {
			p.write(stream, (*b)[:n])
		}
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case rerr != nil:
		return 0, rerr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// drain takes what lies in the pipe right now: it was written before the process ended.
func (p *process) drain(f *os.File, stream wire.Stream) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	b := chunks.Get().(*[]byte)
	defer chunks.Put(b)
	for {
		n := 0
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), *b) })
		if err != nil || n <= 0 {
			return
		}
		p.write(stream, (*b)[:n])
	}
}

// maxDiscards bounds how many outputs of ended processes are kept open for those they left behind.
// Beyond, a leftover that writes gets SIGPIPE.
const maxDiscards = 256

// discard keeps a pipe empty until the last one who writes into it is gone.
func (s *supervisor) discard(f *os.File) {
	if s.discards.Add(1) <= maxDiscards {
		_ = f.SetReadDeadline(time.Time{})
		buf := make([]byte, 512)
		for {
			if _, err := f.Read(buf); err != nil {
				break
			}
		}
	}
	s.discards.Add(-1)
}

// write puts output into the ring, and waits for room when it may not drop anything.
func (p *process) write(stream wire.Stream, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rings[stream-1]
	var looking *time.Timer
	waiting := true
	for {
		n := r.write(b, p.hold(stream), p.spec.Output != wire.OutputLossless)
		if n > 0 {
			p.changed.Broadcast()
		}
		if b = b[n:]; len(b) == 0 {
			break
		}
		if looking == nil && p.spec.Output == wire.OutputAttached {
			since := time.Now()
			looking = time.AfterFunc(stallLook, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if waiting {
					p.passStalled(stream, since)
					looking.Reset(stallLook)
				}
			})
		}
		p.changed.Wait()
	}
	if waiting = false; looking != nil {
		looking.Stop()
	}
}

// hold is the offset from which on the stream's output must not be dropped yet.
func (p *process) hold(stream wire.Stream) uint64 {
	switch p.spec.Output {
	case wire.OutputLossless:
		return of(p.acked, stream)
	case wire.OutputAttached:
		hold := uint64(nothingHeld)
		for r := range p.readers {
			if !r.passed {
				hold = min(hold, of(r.acked, stream))
			}
		}
		return hold
	}
	return nothingHeld
}

// complete says that one output will not grow any more.
func (p *process) complete() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.changed.Broadcast()
}

func growPipe(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20)
	})
}
