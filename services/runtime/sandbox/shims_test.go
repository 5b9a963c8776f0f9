package sandbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShimsAreSharedByThoseWhoLiveAtTheSameTime(t *testing.T) {
	s := shims{open: map[string]*shimGroup{}}
	first := s.join("acme", "a")
	require.NotEqual(t, first, s.join("bolt", "x"), "never by two tenants")
	s.made("acme", "a")
	require.Equal(t, first, s.join("acme", "b"))
	s.made("acme", "b")
	s.leave(t.Context(), "acme", "a")
	require.Equal(t, first, s.join("acme", "c"), "b holds it")
	s.leave(t.Context(), "acme", "c")
	s.leave(t.Context(), "acme", "b")
	s.leave(t.Context(), "acme", "b")
	s.leave(t.Context(), "other", "b")
	require.NotEqual(t, first, s.join("acme", "d"), "its last member has left")
}

func TestTheLastMadeMemberWaitsForOneThatIsBeingMade(t *testing.T) {
	s := shims{open: map[string]*shimGroup{}}
	group := s.join("acme", "a")
	s.made("acme", "a")
	require.Equal(t, group, s.join("acme", "b"))
	left := make(chan struct{})
	go func() { defer close(left); s.leave(t.Context(), "acme", "a") }()
	select {
	case <-left:
		t.Fatal("b has nothing to live in")
	case <-time.After(20 * time.Millisecond):
	}
	s.made("acme", "b")
	<-left

	require.Equal(t, group, s.join("acme", "c"))
	left = make(chan struct{})
	go func() { defer close(left); s.leave(t.Context(), "acme", "b") }()
	s.leave(t.Context(), "acme", "c") // it could not be made
	<-left
	require.Empty(t, s.open)
}
