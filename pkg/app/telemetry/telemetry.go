// Package telemetry sets up logging and tracing for a program. Spans go to an OTLP collector when
// OTEL_EXPORTER_OTLP_ENDPOINT is set, and in any case to a bounded file beside the data, so that
// `weft trace` can show a task's way on a machine without any collector.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/weftmesh/weft/pkg/fault"
)

// Logger makes the program's logger: format is "text" or "json", level one of debug, info, warn, error.
func Logger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fault.New(fault.Invalid, "log level %q must be debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	}
	return nil, fault.New(fault.Invalid, "log format %q must be text or json", format)
}

// Tracing starts exporting spans of the program called name into dir. stop flushes.
func Tracing(ctx context.Context, name, dir string) (stop func(), err error) {
	file, err := newFile(dir)
	if err != nil {
		return nil, err
	}
	opts := []trace.TracerProviderOption{
		trace.WithBatcher(file, trace.WithBatchTimeout(200*time.Millisecond)),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", name))),
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		otlp, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace exporter: %w", err), file.Shutdown(ctx))
		}
		opts = append(opts, trace.WithBatcher(otlp))
	}
	p := trace.NewTracerProvider(opts...)
	otel.SetTracerProvider(p)
	return func() {
		sctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_ = p.Shutdown(sctx)
	}, nil
}
