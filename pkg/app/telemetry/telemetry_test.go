package telemetry

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"github.com/weftmesh/weft/pkg/app/spans"
)

func TestSpansLandInTheFileAndAreReadByTrace(t *testing.T) {
	dir := t.TempDir()
	stop, err := Tracing(context.Background(), "weftd", dir)
	require.NoError(t, err)
	ctx, root := otel.Tracer("x").Start(context.Background(), "submit")
	_, child := otel.Tracer("x").Start(ctx, "claim")
	id := root.SpanContext().TraceID().String()
	child.End()
	root.End()
	_, other := otel.Tracer("x").Start(context.Background(), "other")
	other.End()
	stop()
	files, err := filepath.Glob(filepath.Join(dir, "spans-*.jsonl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"trace":"` + id + `","na`) // as a killed process leaves it
	require.NoError(t, err)
	require.NoError(t, f.Close())
	got, err := spans.Read(dir, id)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "submit", got[0].Name)
	require.Equal(t, got[0].ID, got[1].Parent)
	require.Equal(t, "weftd", got[1].Service)
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	l, err := Logger(&b, "json", "warn")
	require.NoError(t, err)
	l.Info("no")
	l.Warn("yes")
	require.Contains(t, b.String(), `"msg":"yes"`)
	require.NotContains(t, b.String(), `"no"`)
	_, err = Logger(&b, "xml", "warn")
	require.ErrorContains(t, err, "xml")
	_, err = Logger(&b, "text", "loud")
	require.ErrorContains(t, err, "loud")
}
