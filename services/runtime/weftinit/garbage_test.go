package weftinit_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const sandboxID = "0123456789abcdefghij"

// node is one that speaks with weft-init frame by frame. weft-init runs on the host, as a child.
type node struct {
	t    *testing.T
	l    net.Listener
	key  wire.Key
	init *exec.Cmd
}

func newNode(t *testing.T) *node {
	t.Helper()
	needs.Root(t)
	dir := t.TempDir()
	binary := filepath.Join(dir, "weft-init")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/weft-init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	n := &node{t: t, key: wire.NewKey()}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), n.key[:], 0o400))
	n.l, err = net.Listen("unix", filepath.Join(dir, "sock"))
	require.NoError(t, err)
	var stderr bytes.Buffer
	n.init = exec.Command(binary, "-sandbox="+sandboxID, "-run="+dir)
	n.init.Stderr = &stderr
	require.NoError(t, n.init.Start())
	t.Cleanup(func() {
		_ = n.l.Close()
		_ = n.init.Process.Signal(os.Interrupt)
		require.NoError(t, n.init.Wait(), "weft-init ends well: %s", &stderr)
	})
	return n
}

func (n *node) accept() net.Conn {
	n.t.Helper()
	require.NoError(n.t, n.l.(*net.UnixListener).SetDeadline(time.Now().Add(10*time.Second)))
	c, err := n.l.Accept()
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *node) session() *yamux.Session {
	n.t.Helper()
	c := n.accept()
	require.NoError(n.t, wire.HandshakeNode(c, sandboxID, n.key, 5*time.Second))
	s, err := wire.Mux(c, false, io.Discard)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = s.Close() })
	return s
}

// alive asserts that weft-init answers.
func (n *node) alive(s *yamux.Session) {
	n.t.Helper()
	st, err := s.OpenStream()
	require.NoError(n.t, err)
	defer st.Close()
	require.NoError(n.t, st.SetDeadline(time.Now().Add(10*time.Second)))
	require.NoError(n.t, wire.WriteMessage(st, wire.TypeRequest, wire.Request{Op: wire.OpList}))
	f, err := wire.NewReader(st).Message()
	require.NoError(n.t, err)
	require.Equal(n.t, wire.TypeReply, f.Type)
}

func TestGarbageFromTheNode(t *testing.T) {
	n := newNode(t)
	s := n.session()
	n.alive(s)
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	for name, say := range map[string][]byte{
		"nothing":              {},
		"half a header":        {1, 0},
		"half a frame":         {1, 0, 0, 9, '{'},
		"unknown type":         {77, 0, 0, 1, 'x'},
		"too long":             {1, 0xff, 0xff, 0xff},
		"not JSON":             {1, 0, 0, 3, 'a', 'b', 'c'},
		"JSON of another form": append([]byte{1, 0, 0, 2}, "[]"...),
		"not a request":        {5, 0, 0, 0},
		"noise":                noise,
		"parts without end":    bytes.Repeat(append([]byte{4, 0, 0xff, 0}, make([]byte, 0xff00)...), 200),
	} {
		t.Run(name, func(t *testing.T) {
			st, err := s.OpenStream()
			require.NoError(t, err)
			require.NoError(t, st.SetDeadline(time.Now().Add(20*time.Second)))
			go func() {
				_, _ = st.Write(say)
				_ = st.Close()
			}()
			_, _ = io.Copy(io.Discard, st)
			n.alive(s)
		})
	}
	for name, req := range map[string]wire.Request{
		"no operation":        {},
		"unknown operation":   {Op: "explode", As: &wire.Identity{UID: 1}, Path: "/"},
		"start without spec":  {Op: wire.OpStart},
		"attach to nothing":   {Op: wire.OpAttach, Process: strings.Repeat("x", 1000)},
		"resize without size": {Op: wire.OpResize, Process: sandboxID},
		"negative offset":     {Op: wire.OpRead, As: &wire.Identity{UID: 1}, Path: "/etc/passwd", Offset: -1},
		"dial nowhere":        {Op: wire.OpDial, Network: "tcp", Addr: "%%%"},
		"dial nothing":        {Op: wire.OpDial, Network: "unix"},
		"root":                {Op: wire.OpStat, As: &wire.Identity{}, Path: "/"},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := s.OpenStream()
			require.NoError(t, err)
			defer st.Close()
			require.NoError(t, st.SetDeadline(time.Now().Add(20*time.Second)))
			require.NoError(t, wire.WriteMessage(st, wire.TypeRequest, req))
			f, err := wire.NewReader(st).Message()
			require.NoError(t, err)
			require.Equal(t, wire.TypeError, f.Type)
			n.alive(s)
		})
	}
}

func TestGarbageBelowTheSession(t *testing.T) {
	n := newNode(t)
	for range 3 {
		c := n.accept()
		_, _ = c.Write(bytes.Repeat([]byte{0xff}, 10_000)) // in place of the handshake
		_ = c.Close()
	}
	for range 3 {
		c := n.accept()
		require.NoError(t, wire.HandshakeNode(c, sandboxID, n.key, 5*time.Second))
		_, _ = c.Write(bytes.Repeat([]byte{0xff}, 10_000)) // in place of yamux
		_ = c.Close()
	}
	n.alive(n.session())
}

// TestNodeIsProved shows that weft-init believes nobody without the key, and dials again.
func TestNodeIsProved(t *testing.T) {
	n := newNode(t)
	c := n.accept()
	require.Error(t, wire.HandshakeNode(c, sandboxID, wire.NewKey(), 5*time.Second))
	_ = c.Close()
	n.alive(n.session())
}
