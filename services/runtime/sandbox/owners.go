package sandbox

import (
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/schemas/filesystem"
)

// ownerMap says who files on disk seem to belong to: what is uid:gid there, the host's user and group to here. maker,
// unless it is 0, is one more user of the node's, who makes files in the name of others: on disk they are makerID's until
// they get their owner.
type ownerMap struct{ uid, gid, to, maker uint32 }

// makerID owns on disk what a maker has just made.
const makerID = 65533

// owners keeps the user namespaces by which a sandbox's mounts map owners. Making one takes a process and some
// milliseconds, which is done before somebody waits for it.
type owners struct {
	mu   sync.Mutex
	made map[ownerMap]int // descriptors
}

// with runs do with the namespace of m.
func (o *owners) with(m ownerMap, do func(fd int) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	fd, ok := o.made[m]
	if !ok {
		var err error
		if fd, err = m.namespace(); err != nil {
			return err
		}
		if o.made == nil {
			o.made = map[ownerMap]int{}
		}
		o.made[m] = fd
	}
	return do(fd)
}

// close lets them go. What was mounted by them stays as it is.
func (o *owners) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, fd := range o.made {
		_ = unix.Close(fd)
	}
	o.made = nil
}

// namespace makes it.
func (m ownerMap) namespace() (fd int, err error) {
	ids := func(id uint32) []idMap {
		l := []idMap{{ContainerID: int(id), HostID: int(m.to), Size: 1}}
		if m.maker != 0 && m.maker != m.to && id != makerID {
			l = append(l, idMap{ContainerID: makerID, HostID: int(m.maker), Size: 1})
		}
		return l
	}
	err = withNamespaces(unix.CLONE_NEWUSER, ids(m.uid), ids(m.gid), func(procDir string) (err error) {
		fd, err = unix.Open(filepath.Join(procDir, "ns", "user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// foresee makes the namespace that the sandbox's workspace will most likely be mounted with.
func (s *Sandbox) foresee() {
	err := s.owners.with(ownerMap{uid: filesystem.OwnerID, gid: filesystem.OwnerID, to: s.HostUID()}, func(int) error { return nil })
	if err != nil {
		s.node.log.Debug("no user namespace was made ahead", "sandbox", s.id, "error", err)
	}
}
