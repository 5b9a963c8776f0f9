package containerd

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// shims are those that have no container yet.
type shims struct {
	mu      sync.Mutex
	awaited map[proc.Process]bool
	spare   map[string]*Shim     // by runtime
	taken   map[string]time.Time // when, by runtime
	alone   map[string]bool      // runtimes whose shims serve one container each
	wake    chan struct{}
	quit    chan struct{}
}

// A spare shim takes 6 MiB. It is started when a moment has passed since one was taken, and while no container is being made; and it
// ends when for a long time nobody has wanted one.
const (
	sparePause = 40 * time.Millisecond
	spareAge   = 10 * time.Minute
)

func newShims() shims {
	return shims{awaited: map[proc.Process]bool{}, spare: map[string]*Shim{}, taken: map[string]time.Time{}, alone: map[string]bool{}, wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

// TakeShim gives a shim that serves nobody, for containers of a runtime, and does not wait until it answers. Where there is none, for
// whatever reason, containerd starts its own. Of a containerd that isn't the Engine's, it starts none.
func (e *Engine) TakeShim(runtime string) *Shim {
	runtime = cmp.Or(runtime, Runc)
	e.shims.mu.Lock()
	s := e.shims.spare[runtime]
	delete(e.shims.spare, runtime)
	e.shims.taken[runtime] = time.Now()
	e.shims.mu.Unlock()
	if s != nil && !s.process.Alive() {
		s.Release(proc.Process{})
		s = nil
	}
	if s == nil {
		s = e.startShim(runtime)
	}
	select {
	case e.shims.wake <- struct{}{}:
	default:
	}
	return s
}

// keepSpares has spare shims there for those runtimes of which containers are made these days, until the Engine is closed.
func (e *Engine) keepSpares() {
	age := time.NewTicker(spareAge / 10)
	defer age.Stop()
	for {
		select {
		case <-e.shims.wake:
			for busy := true; busy && !e.closed.Load(); busy = e.making() {
				select {
				case <-time.After(sparePause):
				case <-e.shims.quit:
				}
			}
			e.fillSpares()
		case <-age.C:
			e.dropSpares(time.Now().Add(-spareAge))
		case <-e.shims.quit:
			e.dropSpares(time.Now().Add(time.Hour))
			return
		}
	}
}

// making says whether containers are being made.
func (e *Engine) making() bool {
	if !e.creating.TryLock() {
		return true
	}
	e.creating.Unlock()
	return false
}

func (e *Engine) fillSpares() {
	e.shims.mu.Lock()
	var lacking []string
	for runtime := range e.shims.taken {
		if e.shims.spare[runtime] == nil && !e.closed.Load() {
			lacking = append(lacking, runtime)
		}
	}
	e.shims.mu.Unlock()
	for _, runtime := range lacking {
		if s := e.startShim(runtime); s.process.PID != 0 {
			e.shims.mu.Lock()
			e.shims.spare[runtime] = s
			e.shims.mu.Unlock()
		}
	}
}

// dropSpares ends the spare shims of runtimes for which none was taken since.
func (e *Engine) dropSpares(since time.Time) {
	e.shims.mu.Lock()
	var old []*Shim
	for runtime, at := range e.shims.taken {
		if at.Before(since) {
			if s := e.shims.spare[runtime]; s != nil {
				old = append(old, s)
			}
			delete(e.shims.spare, runtime)
			delete(e.shims.taken, runtime)
		}
	}
	e.shims.mu.Unlock()
	for _, s := range old {
		s.Release(proc.Process{})
	}
}

// ignored notes that containerd started a shim of its own beside the Engine's: the runtime's knows nothing of groups.
func (e *Engine) ignored(runtime string) {
	e.cfg.Log.Info("a runtime's shims can't be started ahead", "runtime", runtime)
	e.shims.mu.Lock()
	defer e.shims.mu.Unlock()
	e.shims.alone[runtime] = true
}

// isAwaited says whether a shim is a spare one, or to get its first container any moment.
func (e *Engine) isAwaited(p proc.Process) bool {
	e.shims.mu.Lock()
	defer e.shims.mu.Unlock()
	return e.shims.awaited[p]
}

// clearSpares ends the spare shims of an earlier process. What one may already have a container for has no directory any more.
func (e *Engine) clearSpares() {
	dir := filepath.Join(e.cfg.RunDir, "shim")
	spares, err := os.ReadDir(dir)
	if err != nil || len(spares) == 0 {
		return
	}
	idle, err := e.idleShims()
	if err != nil {
		return
	}
	for _, p := range idle {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		group := flagOf(strings.Split(string(line), "\x00"), "-id")
		if _, err := os.Stat(filepath.Join(dir, group)); group != "" && err == nil {
			e.endShim(p, group)
		}
	}
	_ = os.RemoveAll(dir)
}
