package sandbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

func TestShimsAreSharedByThoseWhoLiveAtTheSameTime(t *testing.T) {
	s := shims{open: map[string]*shimGroup{}}
	first := group(&s, "acme", "a")
	require.NotSame(t, first, group(&s, "bolt", "x"), "never by two tenants")
	s.made("acme", "a")
	require.Same(t, first, group(&s, "acme", "b"))
	s.made("acme", "b")
	s.leave(t.Context(), "acme", "a")
	require.Same(t, first, group(&s, "acme", "c"), "b holds it")
	s.leave(t.Context(), "acme", "c")
	s.leave(t.Context(), "acme", "b")
	s.leave(t.Context(), "acme", "b")
	s.leave(t.Context(), "other", "b")
	require.NotSame(t, first, group(&s, "acme", "d"), "its last member has left")
}

func TestTheLastMadeMemberWaitsForOneThatIsBeingMade(t *testing.T) {
	s := shims{open: map[string]*shimGroup{}}
	g := group(&s, "acme", "a")
	s.made("acme", "a")
	require.Same(t, g, group(&s, "acme", "b"))
	left := make(chan struct{})
	go func() { defer close(left); s.leave(t.Context(), "acme", "a") }()
	select {
	case <-left:
		t.Fatal("b has nothing to live in")
	case <-time.After(20 * time.Millisecond):
	}
	s.made("acme", "b")
	<-left

	require.Same(t, g, group(&s, "acme", "c"))
	left = make(chan struct{})
	go func() { defer close(left); s.leave(t.Context(), "acme", "b") }()
	s.leave(t.Context(), "acme", "c") // it could not be made
	<-left
	require.Empty(t, s.open)
}

func group(s *shims, lane, sandbox string) *containerd.Shim {
	shim, _ := s.join(lane, sandbox, func() *containerd.Shim { return new(containerd.Shim) })
	return shim
}
