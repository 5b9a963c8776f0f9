package weftinit

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	// outputGrace is how long after a process's end its output is still followed when something it
	// left behind holds the pipe: what that writes later is read and thrown away, so that it neither
	// blocks nor dies of it.
	outputGrace = 100 * time.Millisecond
	// readerGrace is how long an attached process is held back for a reader whose connection broke.
	readerGrace = 10 * time.Second
	// namedGrace is the same for a reader with a name, who is beyond the node: the node's restart comes first.
	namedGrace = time.Minute
	// stallGrace is how long one who takes nothing may hold back a process while another reader has
	// everything and waits.
	stallGrace = 5 * time.Second
	stallLook  = time.Second
	// maxReaders of one process at once.
	maxReaders = 64
)

// process is one process that the node started, until it is forgotten.
type process struct {
	spec wire.ProcessSpec
	init *supervisor

	started chan struct{} // closed when it runs, or could not be started
	done    chan struct{} // closed when it ended and its output is complete
	failure error         // why it could not be started; set before started is closed

	pid     int
	tree    tree
	begin   time.Time
	reaped  chan ended
	gone    chan struct{} // closed when it was reaped: nobody is left to write to, or to signal
	stdin   *stdin
	tty     *os.File // the terminal's master side
	outputs []*os.File
	ending  ending

	mu      sync.Mutex
	changed *sync.Cond // output, space, readers or the end changed
	rings   [2]*ring   // stdout, stderr
	open    int        // outputs that are not complete yet
	acked   wire.Offsets
	readers map[*reader]struct{}
	exit    *wire.Exit
}

func newProcess(s *supervisor, spec wire.ProcessSpec) *process {
	p := &process{
		spec: spec, init: s,
		started: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
		reaped: make(chan ended, 1), readers: map[*reader]struct{}{},
	}
	p.changed = sync.NewCond(&p.mu)
	p.ending.asked = make(chan struct{}, 1)
	for i := range p.rings {
		p.rings[i] = newRing(&s.budget, spec.Buffer)
	}
	return p
}

// fail ends a process that never ran with a code of its own.
func (p *process) fail(code int, message string) {
	now := time.Now()
	p.spec.Argv, p.spec.Env = clipArgs(p.spec.Argv), nil
	p.finish(wire.Exit{Code: code, Reason: wire.ReasonFailed, Message: message, Start: now, End: now})
}

// supervise sees to the process from its start to its end. It runs in a goroutine of its own.
func (p *process) supervise() {
	var e ended
	reaped := false
	var timeout <-chan time.Time
	if p.spec.Timeout > 0 {
		t := time.NewTimer(p.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	for !reaped {
		select {
		case e = <-p.reaped:
			reaped = true
		case <-timeout:
			p.ending.begin(wire.ReasonTimeout, p.spec.Grace, p.tree)
		}
	}
	reason := p.ending.reason() // what is asked for from here on did not end it
	close(p.gone)
	p.stdin.close()
	p.closeOutputsAfter(outputGrace)
	leftovers := p.ending.wait()
	if p.spec.KillLeftovers {
		leftovers = !p.tree.kill() || leftovers
	}
	p.mu.Lock()
	for p.open > 0 {
		p.changed.Wait()
	}
	p.mu.Unlock()
	x := exitOf(e)
	x.Start, x.Leftovers = p.begin, leftovers
	if reason != "" {
		x.Reason = reason
	}
	p.finish(x)
}

// closeOutputsAfter lets the pumps go on until then, should something still hold the other ends.
func (p *process) closeOutputsAfter(grace time.Duration) {
	for _, f := range p.outputs {
		_ = f.SetReadDeadline(time.Now().Add(grace))
	}
}

func exitOf(e ended) wire.Exit {
	x := wire.Exit{
		Code: e.status.ExitStatus(), Reason: wire.ReasonExited, End: e.at,
		UserCPU:   time.Duration(e.usage.Utime.Nano()),
		SystemCPU: time.Duration(e.usage.Stime.Nano()),
		MaxRSS:    e.usage.Maxrss << 10,
	}
	if e.status.Signaled() {
		x.Code = 128 + int(e.status.Signal())
		x.Signal = unix.SignalName(e.status.Signal())
		x.Reason = wire.ReasonSignaled
	}
	return x
}

func (p *process) finish(x wire.Exit) {
	p.mu.Lock()
	x.Stdout, x.Stderr = p.rings[0].end, p.rings[1].end
	x.Dropped = p.rings[0].lost + p.rings[1].lost
	p.exit = &x
	p.changed.Broadcast()
	p.mu.Unlock()
	close(p.done)
	if p.tty != nil {
		// Closing the master hangs up whoever is left at the terminal.
		_ = p.tty.Close()
	}
	p.init.ended(p)
}

// info is the process as it is listed. Long argument lists are cut.
func (p *process) info() wire.ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := wire.ProcessInfo{
		ID: p.spec.ID, PID: p.pid, UID: p.spec.Identity.UID, PTY: p.spec.PTY != nil,
		Argv: p.spec.Argv, Output: p.spec.Output, Labels: p.spec.Labels, Start: p.begin, Exit: p.exit,
		Oldest: wire.Offsets{Stdout: p.rings[0].oldest, Stderr: p.rings[1].oldest},
		End:    wire.Offsets{Stdout: p.rings[0].end, Stderr: p.rings[1].end},
		Acked:  p.acked,
	}
	return i
}

// clipArgs keeps a list of all processes within one message.
func clipArgs(argv []wire.Text) []wire.Text {
	const most = 1 << 10
	out, size := make([]wire.Text, 0, min(len(argv), 16)), 0
	for _, a := range argv {
		if size+len(a) > most {
			return append(out, a[:max(0, most-size)]+"…")
		}
		out, size = append(out, a), size+len(a)+16
	}
	return out
}

// isDone reports whether the process is over and its output complete.
func (p *process) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// idle reports whether nobody can miss an ended process's record: nobody follows it, and all its
// output that had to be acknowledged was.
func (p *process) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.readers) > 0 {
		return false
	}
	return p.spec.Output != wire.OutputLossless ||
		p.acked.Stdout >= p.rings[0].end && p.acked.Stderr >= p.rings[1].end
}

func (p *process) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rings {
		r.free()
	}
	for r := range p.readers {
		r.close()
	}
	p.changed.Broadcast()
}
