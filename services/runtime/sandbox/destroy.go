package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/schemas"
)

// dir is the directory of sandbox id.
func (n *Node) dir(id string) string { return filepath.Join(n.base(), id) }

// Destroy ends whatever runs in the sandbox and removes everything of it. Doing it again is no error;
// after an error it should be, since what could be removed is gone and the rest is still known. Conflict: it
// waited to be claimed, and was.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.destroy.Lock()
	defer s.destroy.Unlock()
	if s.blank != nil {
		if err := s.withdraw(); err != nil {
			return err
		}
	}
	kill, cancel := context.WithTimeout(ctx, killTimeout)
	err := s.group.Kill(kill) // first, and without containerd: a sandbox that is to end does no more work
	cancel()
	s.node.shims.leave(ctx, s.shim, s.id)
	err = errors.Join(err, s.node.remove(ctx, s.id))
	s.unwatch()
	if err == nil {
		s.node.drop(s)
	}
	return err
}

// Destroy removes everything of the sandbox called id, also what an earlier process left of it that is
// no whole sandbox any more. Nothing there is no error.
func (n *Node) Destroy(ctx context.Context, id string) error {
	if s, ok := n.Get(id); ok {
		return s.Destroy(ctx)
	}
	body, err := n.bodyOf(id)
	if err != nil {
		return err
	}
	if n.held(body) {
		return fault.New(fault.Conflict, "sandbox %s has another name now", id)
	}
	return n.remove(ctx, body)
}

// remove takes away all that hangs on a body's id, whatever of it is there. Each step is tried, also after
// one that failed, but what later steps would hide from the next try stays until all before succeeded.
func (n *Node) remove(ctx context.Context, id string) error {
	if err := schemas.CheckID("sandbox", id); err != nil {
		return err // never build paths from anything else
	}
	thawed := n.thawDisk(id) // first: who waits to write there can't be killed
	group := n.cgroups.Group(id)
	kill, cancel := context.WithTimeout(ctx, killTimeout)
	killed := group.Kill(kill)
	cancel()
	err := errors.Join(thawed, killed, n.engine.Delete(ctx, id), n.server.Remove(id))
	if _, uerr := mounts.DetachBelow(n.dir(id)); uerr != nil {
		err = errors.Join(err, uerr)
	}
	clear, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	err = errors.Join(err, group.Remove(clear))
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	if err := n.removeLayer(id); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	// Nothing is mounted below any more, or the step before had failed. Whoever comes late with a claim still
	// writes there for a moment.
	err = os.RemoveAll(n.dir(id))
	for try := 0; errors.Is(err, unix.ENOTEMPTY) && try < 100; try++ {
		time.Sleep(time.Millisecond)
		err = os.RemoveAll(n.dir(id))
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	return n.ranges.release(id)
}
