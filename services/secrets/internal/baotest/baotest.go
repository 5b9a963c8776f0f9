// Package baotest gives tests a real OpenBao.
package baotest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/services/secrets/bao"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Bin gives the server's binary. Where it is missing the test is skipped, or fails if
// WEFT_TEST_REQUIRE=1.
func Bin(t testing.TB) string {
	t.Helper()
	bin, err := toolchain.Find("bao")
	needs.All(t, err, needs.RootMissing())
	return bin
}

// Dir is a directory for a server. Its path is short enough for a socket, which t.TempDir's is not always.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bao")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var seed struct {
	sync.Once
	dir string
	err error
}

// Seeded is a directory in which a server was initialised and stopped: it starts in a tenth of the time.
func Seeded(t testing.TB) string {
	t.Helper()
	bin := Bin(t)
	seed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if seed.dir, seed.err = os.MkdirTemp("", "bao-seed"); seed.err != nil {
			return
		}
		var s *bao.Server
		if s, seed.err = bao.Open(ctx, bao.Config{Bin: bin, Dir: seed.dir}); seed.err == nil {
			seed.err = s.Stop(ctx)
		}
	})
	require.NoError(t, seed.err)
	dir := Dir(t)
	require.NoError(t, os.CopyFS(dir, os.DirFS(seed.dir)))
	return dir
}

// Main runs the tests of a package, looks for goroutines left behind, and removes the seed.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if seed.dir != "" {
			_ = os.RemoveAll(seed.dir)
		}
		os.Exit(code)
	}))
}

// Start runs a server that is kept alive until the test ends.
func Start(t testing.TB) *bao.Server {
	t.Helper()
	s := Open(t, Seeded(t))
	Run(t, s)
	return s
}

// Open starts or finds the server of dir and stops it with the test.
func Open(t testing.TB, dir string) *bao.Server {
	t.Helper()
	hurry, cancel := context.WithCancel(context.Background())
	cancel() // a stop without patience kills: it takes OpenBao a second to end by itself
	s, err := bao.Open(Context(t), bao.Config{Bin: Bin(t), Dir: dir, Logger: Logger(t)})
	if err != nil {
		_ = bao.StopIn(hurry, dir)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Stop(hurry) })
	return s
}

// Run keeps s alive until the test ends, before Open's cleanup stops it.
func Run(t testing.TB, s *bao.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// Client connects to s as the service does.
func Client(t testing.TB, s *bao.Server) *vault.Client {
	t.Helper()
	c, err := vault.New(vault.Config{Address: s.Address(), Auth: s, Logger: Logger(t)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.NoError(t, c.Ensure(Context(t)))
	return c
}

// Root gives a client with a root token.
func Root(t testing.TB, s *bao.Server) *api.Client {
	t.Helper()
	v, err := vault.Dial(s.Address(), "")
	require.NoError(t, err)
	t.Cleanup(func() { vault.Hang(v) })
	return vault.As(v, RootToken(t, s))
}

// RootToken makes a root token with the unseal key, as an administrator would.
func RootToken(t testing.TB, s *bao.Server) value.Value {
	t.Helper()
	var k struct {
		UnsealKey string `json:"unseal_key"`
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(strings.TrimPrefix(s.Address(), "unix://")), "keys.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &k))
	v, err := vault.Dial(s.Address(), "")
	require.NoError(t, err)
	t.Cleanup(func() { vault.Hang(v) })
	a, err := v.Sys().GenerateRootInitWithContext(Context(t), "", "")
	require.NoError(t, err)
	u, err := v.Sys().GenerateRootUpdateWithContext(Context(t), k.UnsealKey, a.Nonce)
	require.NoError(t, err)
	token, err := base64.RawStdEncoding.DecodeString(u.EncodedToken)
	require.NoError(t, err)
	for i := range token {
		token[i] ^= a.OTP[i]
	}
	return value.OfBytes(token)
}

// Context ends with the test, after a minute at the latest.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Logger writes to the test's output.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writer struct{ t testing.TB }

func (w writer) Write(b []byte) (int, error) {
	w.t.Log(string(b[:len(b)-1]))
	return len(b), nil
}
