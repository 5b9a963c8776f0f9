package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// mover keeps the kernel's lock on moving whole processes between groups cheap. The lock is made for machines that hardly ever
// do: unless the kernel has favordynmods, the first move after a while waits until every processor has passed a point of rest
// (an RCU grace period; 4 to 17 ms, median 11, on 2 cores at 250 Hz), and for some 15 ms after it no other waits (0.2 ms). A
// runtime moves process 1 in the middle of making a container, when nothing else can go on.
//
// So the kernel is made to wait ahead, beside other work, and is kept so until the container is made.
type mover struct {
	mu    sync.Mutex
	moves int // that are to come
	stop  chan struct{}
	ended chan struct{}
}

// moveEvery is how often the lock is taken while moves are to come.
const moveEvery = 5 * time.Millisecond

// MoveSoon says that a process is about to be moved into one of the groups, until done is called. It does not wait, and changes
// nothing that can be seen.
func (t *Tree) MoveSoon() (done func()) {
	m := &t.mover
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moves++; m.moves == 1 {
		m.stop, m.ended = make(chan struct{}), make(chan struct{})
		go keepReady(t.own(), m.stop, m.ended)
	}
	return sync.OnceFunc(m.done)
}

func (m *mover) done() {
	m.mu.Lock()
	m.moves--
	last, ended := m.moves == 0, m.ended
	if last {
		close(m.stop)
	}
	m.mu.Unlock()
	if last {
		<-ended
	}
}

// keepReady moves this process into the group that it is in, again and again until stop is closed. Where that can't be, later moves
// only take longer.
func keepReady(procs string, stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(procs, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("0")
			f.Close()
		}
		if err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// own is the cgroup.procs of the group that this process is in: of version 2 wherever that is mounted, else in the hierarchy of
// the controller pids. Asked each time, since whoever runs the machine may move us.
func (t *Tree) own() string {
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // hierarchy:controllers:path
		if len(parts) < 3 {
			continue
		}
		if t.v2 != "" && parts[0] == "0" {
			return filepath.Join(t.v2, parts[2], "cgroup.procs")
		}
		if t.v2 == "" && strings.Contains(","+parts[1]+",", ",pids,") {
			return filepath.Join(t.mounts["pids"], parts[2], "cgroup.procs")
		}
	}
	return ""
}
