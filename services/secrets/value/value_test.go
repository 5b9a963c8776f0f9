package value_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/secrets/value"
)

const secret = "hunter2-hunter2"

type holder struct {
	Name  string
	Value value.Value
	Ptr   *value.Value
	inner value.Value
	Map   map[string]value.Value
}

func hold() holder {
	v := value.Of(secret)
	return holder{"n", v, &v, v, map[string]value.Value{"k": v}}
}

type holderXML struct{ V value.Value }

// forms are ways in which the secret could show: as text, hex in both cases, and decimal bytes.
func requireHidden(t *testing.T, out string) {
	t.Helper()
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("%d", []byte(secret)[:3])} {
		require.NotContains(t, out, form)
		if len(form) > 3 {
			require.NotContains(t, out, form[1:len(form)-1])
		}
	}
}

func TestNoVerbShowsAValue(t *testing.T) {
	h := hold()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%U", "%e", "%t", "%p", "%T", "%10.3s", "%-30v"} {
		for _, arg := range []any{h.Value, h.Ptr, h, &h, []value.Value{h.Value}, h.Map, errors.Join(fmt.Errorf("with %v", h.Value))} {
			requireHidden(t, fmt.Sprintf(verb, arg))
		}
	}
	require.Equal(t, value.Redacted, h.Value.String())
	requireHidden(t, fmt.Sprint(h.inner))
}

func TestNoEncoderShowsAValue(t *testing.T) {
	h := hold()
	j, err := json.Marshal(h)
	require.NoError(t, err)
	requireHidden(t, string(j))
	require.Contains(t, string(j), value.Redacted)

	x, err := xml.Marshal(holderXML{h.Value})
	require.NoError(t, err)
	requireHidden(t, string(x))

	var g bytes.Buffer
	_ = gob.NewEncoder(&g).Encode(struct{ V value.Value }{h.Value})
	requireHidden(t, g.String())
}

func TestNoLoggerShowsAValue(t *testing.T) {
	var text, js bytes.Buffer
	h := hold()
	for _, l := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), slog.New(slog.NewJSONHandler(&js, nil))} {
		l.Info("m", "v", h.Value, "p", h.Ptr, "h", h, "m", h.Map, slog.Group("g", "v", h.Value), "err", fmt.Errorf("x: %v", h))
	}
	requireHidden(t, text.String())
	requireHidden(t, js.String())
	require.Contains(t, text.String(), value.Redacted)
}

func TestRevealGivesIt(t *testing.T) {
	v := value.Of(secret)
	require.Equal(t, secret, v.Reveal())
	require.Equal(t, []byte(secret), v.Bytes())
	require.Equal(t, len(secret), v.Len())
	require.True(t, value.Value{}.Empty())
	require.True(t, value.Of("").Empty())
	require.Empty(t, value.Value{}.Reveal())
}
