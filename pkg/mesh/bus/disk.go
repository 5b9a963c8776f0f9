package bus

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
)

// A stream of the nats-server to which a write failed because the disk is full takes no further write, also
// when there is room again: its store keeps the error until the server starts anew. So the bus waits for
// room and starts the server anew on what was acknowledged; clients reconnect by themselves.

const (
	roomNeeded = 32 << 20 // free bytes before the server is started anew
	lookEvery  = 500 * time.Millisecond
)

// disk knows whether the disk under the store is full.
type disk struct {
	dir  string
	full atomic.Bool
	told chan struct{} // that a write failed
	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

func newDisk(dir string) *disk {
	return &disk{dir: dir, told: make(chan struct{}, 1), done: make(chan struct{})}
}

// failed is told of the server's errors.
func (d *disk) failed(line string) {
	if !strings.Contains(line, syscall.ENOSPC.Error()) && !strings.Contains(line, syscall.EDQUOT.Error()) {
		return
	}
	d.full.Store(true)
	select {
	case d.told <- struct{}{}:
	default:
	}
}

func (d *disk) close() {
	d.once.Do(func() { close(d.done) })
	d.wg.Wait()
}

// sleep waits a while; false means that the bus stops.
func (d *disk) sleep() bool {
	select {
	case <-d.done:
		return false
	case <-time.After(lookEvery):
		return true
	}
}

func (d *disk) room() bool {
	var st syscall.Statfs_t
	return syscall.Statfs(d.dir, &st) == nil && int64(st.Bavail)*st.Bsize >= roomNeeded
}

// Ready says why nothing can be stored, if that is so.
func (b *Server) Ready() error {
	if b.disk.full.Load() {
		return fault.New(fault.Exhausted, "the disk under %s is full; nothing is accepted until there are %d MiB free", b.cfg.Dir, roomNeeded>>20)
	}
	return nil
}

// watchDisk starts the server anew after the disk was full.
func (b *Server) watchDisk() {
	for {
		select {
		case <-b.disk.done:
			return
		case <-b.disk.told:
		}
		if err := b.Ready(); err != nil && b.cfg.Logger != nil {
			b.cfg.Logger.Error("the bus stores nothing", "err", err)
		}
		for !b.disk.room() {
			if !b.disk.sleep() {
				return
			}
		}
		for !b.again() {
			if !b.disk.sleep() {
				return
			}
		}
	}
}

// again starts the server anew on the same address, and reports whether it did.
func (b *Server) again() bool {
	old := b.NATS()
	old.Shutdown()
	old.WaitForShutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	b.disk.full.Store(false)
	select {
	case <-b.disk.told:
	default:
	}
	s, err := b.start(ctx)
	if err != nil {
		b.disk.full.Store(true)
		if b.cfg.Logger != nil {
			b.cfg.Logger.Error("the bus does not start anew", "err", err)
		}
		return false
	}
	b.mu.Lock()
	b.s = s
	b.mu.Unlock()
	if b.cfg.Logger != nil {
		b.cfg.Logger.Info("there is room on the disk again; the bus goes on", "dir", b.cfg.Dir)
	}
	return true
}
