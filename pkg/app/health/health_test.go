package health

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

func TestServer(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weft_test_total", Help: "x"})
	reg.MustRegister(c)
	s, err := New("127.0.0.1:0", reg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	get := func(path string) (int, string) {
		r, err := http.Get("http://" + s.Addr() + path)
		require.NoError(t, err)
		defer func() { _ = r.Body.Close() }()
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(b)
	}
	code, _ := get("/healthz")
	require.Equal(t, 200, code)
	code, _ = get("/readyz")
	require.Equal(t, 200, code)
	s.Add("vault", func(context.Context) error {
		return fault.Wrap(errors.New("secret"), fault.Unavailable, "Vault is sealed")
	})
	code, body := get("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "Vault is sealed")
	require.NotContains(t, body, "secret")
	_, body = get("/metrics")
	require.Contains(t, body, "weft_test_total")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	_, err = New("256.0.0.1:1", reg)
	require.Equal(t, fault.Unavailable, fault.CodeOf(err))
}
