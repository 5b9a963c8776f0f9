package containerd_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

func TestCheckRegistry(t *testing.T) {
	for _, good := range []string{"example.com", "example.com:5000", "example.com/team", "example.com:5000/team/images", "127.0.0.1:5000", "localhost"} {
		require.NoError(t, containerd.CheckRegistry(good), good)
	}
	for _, bad := range []string{"", "team", "https://example.com", "example.com/", "/example.com", "example.com//x", "example.com/Team", "*.example.com", "example.com/x:1", "example.com/x@sha256:12", " example.com"} {
		require.True(t, fault.Is(containerd.CheckRegistry(bad), fault.Invalid), bad)
	}
}

// TestOnlyNamedRegistriesAreContacted: what a template names has the node speak to nobody, unless its operator named the registry.
func TestOnlyNamedRegistriesAreContacted(t *testing.T) {
	machine.Need(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var asked atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = c.Close()
		}
	}()
	registry := l.Addr().String()
	cfg := machine.Config
	cfg.Registries = []string{registry + "/team", "example.com"}
	e, err := containerd.Open(within(t, time.Minute), cfg)
	require.NoError(t, err)
	defer e.Close()
	for _, ref := range []string{registry + "/image:1", registry + "/teams/image:1", registry + "/team:1/../x:1", "localhost" + registry[len("127.0.0.1"):] + "/team/image:1"} {
		_, err := e.Image(within(t, 20*time.Second), ref)
		require.Contains(t, []fault.Code{fault.Denied, fault.Invalid}, fault.CodeOf(err), "%s: %v", ref, err)
	}
	_, err = e.Image(within(t, 20*time.Second), registry+"/image:1")
	_, text := fault.Public(err)
	require.Contains(t, text, "-registries")
	_, err = e.Image(within(t, 20*time.Second), "no-such-archive")
	require.True(t, fault.Is(err, fault.Unavailable), "another node may have it: %v", err)
	require.Zero(t, asked.Load())
	_, err = e.Image(within(t, 20*time.Second), registry+"/team/image:1")
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.NotZero(t, asked.Load())
}
