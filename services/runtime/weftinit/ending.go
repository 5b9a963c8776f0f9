package weftinit

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// ending is the ordered end of a process's tree: SIGTERM to all of it, and after a grace SIGKILL until
// none is left. It is begun at most once; asking again can only shorten the grace.
type ending struct {
	mu       sync.Mutex
	why      wire.Reason
	deadline time.Time
	asked    chan struct{} // a new deadline
	over     chan struct{} // closed when the tree is gone or was given up; nil before begin
	left     bool
}

func (e *ending) begin(why wire.Reason, grace time.Duration, t tree) {
	e.mu.Lock()
	defer e.mu.Unlock()
	deadline := time.Now().Add(grace)
	if e.over != nil {
		if deadline.Before(e.deadline) {
			e.deadline = deadline
			select {
			case e.asked <- struct{}{}:
			default:
			}
		}
		return
	}
	e.why, e.deadline, e.over = why, deadline, make(chan struct{})
	go e.run(t)
}

// mark gives the reason for an end that somebody else sees to.
func (e *ending) mark(why wire.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why == "" {
		e.why = why
	}
}

func (e *ending) run(t tree) {
	if time.Until(e.when()) > 0 {
		t.signal(unix.SIGTERM)
		t.signal(unix.SIGCONT) // one that is stopped would not see the first
	}
	for {
		// A shorter grace may be asked for while waiting; short waits see it in time.
		deadline := e.when()
		select {
		case <-e.asked:
			continue
		default:
		}
		if !time.Now().Before(deadline) {
			break
		}
		if t.wait(minTime(deadline, time.Now().Add(50*time.Millisecond))) {
			break
		}
	}
	left := !t.kill()
	e.mu.Lock()
	e.left = left
	e.mu.Unlock()
	close(e.over)
}

func (e *ending) when() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deadline
}

// wait returns when the ending that was begun, if any, is over, and whether something survived it.
func (e *ending) wait() (leftovers bool) {
	e.mu.Lock()
	over := e.over
	e.mu.Unlock()
	if over == nil {
		return false
	}
	<-over
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left
}

func (e *ending) reason() wire.Reason {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}
