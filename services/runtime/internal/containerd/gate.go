package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// gate is where runc has a container's process 1 wait, all of it made and limited, until somebody reads from
// exec.fifo in the container's state. `runc start` is a program that does no more than that, but it can be run only once
// `runc create` and all those who wait for it have ended: some ten milliseconds in which process 1 could have been at work.
//
// So whoever creates a container reads from the gate itself, as soon as it is there. containerd isn't told: to it the task
// stays "created", of which it is as easily rid as of one that runs.
type gate struct {
	path   string
	stop   context.CancelFunc
	done   sync.WaitGroup
	passed bool // process 1 has gone through; to be read after done
}

// How often it is looked whether the gate is there yet, and how long process 1 may take to reach it once its container is made.
const (
	gateLook = 500 * time.Microsecond
	gateWait = 2 * time.Second
)

// openGate waits for the gate of container id, and opens it. Call close in the end.
func (e *Engine) openGate(ctx context.Context, id string) *gate {
	ctx, stop := context.WithCancel(ctx)
	g := &gate{path: filepath.Join(e.runcRoot(), Namespace, id, "exec.fifo"), stop: stop}
	g.done.Go(func() { g.passed = g.open(ctx) })
	return g
}

func (g *gate) open(ctx context.Context) bool {
	f, err := g.find(ctx)
	if err != nil {
		return false
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })()
	n, _ := f.Read(make([]byte, 1))
	return n == 1
}

// find opens the fifo when it is there. For writing as well: so it is open whoever else has it, or nobody yet.
func (g *gate) find(ctx context.Context) (*os.File, error) {
	look := time.NewTicker(gateLook)
	defer look.Stop()
	for {
		f, err := os.OpenFile(g.path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// through waits for process 1 of a container that is made, and reports whether it has gone through the gate. False: it
// still waits, for `runc start`.
func (g *gate) through() bool {
	late := time.AfterFunc(gateWait, g.stop)
	if _, err := os.Lstat(g.path); err != nil {
		g.stop() // it has none where we looked for it
	}
	g.done.Wait()
	late.Stop()
	if g.passed {
		_ = os.Remove(g.path) // by which runc tells who waits from who runs
	}
	return g.passed
}

// close gives it up.
func (g *gate) close() {
	g.stop()
	g.done.Wait()
}
