package weftinit

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Threads count as processes against the sandbox's limit, and Go's runtime ends the program when it
// can't make one: a fork bomb would take process 1 with it. So process 1 has all the threads that it will
// need before it starts anything else, keeps what blocks a thread within bounds, and leaves payload less than the
// whole limit.
//
// What it does between two words to the node is a chain of short steps. On more than one processor each step would wake a thread
// that looks for more to do, finds nothing, and takes a processor from the payload: twice the context switches for a command.
// The price is that a start, which the kernel holds up until the program is executed, holds up the other operations, too.
const (
	processors   = 1
	spareThreads = 24 // unless the kernel refuses none; see supervisor.Launch
	maxBlocking  = 8  // operations that block their thread at once
)

// makeThreads makes the runtime start so many threads, which it then keeps for later.
func makeThreads(n int) {
	var up, done sync.WaitGroup
	release := make(chan struct{})
	for range n {
		up.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // as long as all are locked, each has one of its own
			up.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	up.Wait()
	close(release)
	done.Wait()
}

// blocking has a place for each operation that may block its thread in the kernel: what works on
// files and /proc. What works on pipes and sockets never does.
var blocking = make(chan struct{}, maxBlocking)

// block does f while holding such a place. It must not be nested.
func block(f func()) {
	blocking <- struct{}{}
	defer func() { <-blocking }()
	f()
}

// reservePIDs limits how many processes one user of the sandbox may have, below what the sandbox
// itself may have. The limit is inherited by all payload; on process 1 it has no effect, since its own user
// has no other processes.
func reservePIDs(limit int64) error {
	if limit == 0 {
		limit = pidsLimit()
	}
	if limit == 0 || os.Getpid() != 1 {
		return nil
	}
	most := uint64(max(limit/2, 1))
	if limit > 2*wire.ReservedPIDs {
		most = uint64(limit - wire.ReservedPIDs)
	}
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &have); err != nil {
		return err
	}
	most = min(most, have.Max)
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most})
}
