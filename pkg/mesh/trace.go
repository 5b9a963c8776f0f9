package mesh

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// carrier writes trace context into headers as they are: NATS headers are case-sensitive, and W3C's are
// lower case, where OpenTelemetry's own carrier for HTTP would change them.
type carrier nats.Header

func (c carrier) Get(k string) string { return nats.Header(c).Get(k) }
func (c carrier) Set(k, v string)     { nats.Header(c).Set(k, v) }
func (c carrier) Keys() []string {
	ks := make([]string, 0, len(c))
	for k := range c {
		ks = append(ks, k)
	}
	return ks
}

var propagator = propagation.TraceContext{}

// Inject writes ctx's trace context into h.
func Inject(ctx context.Context, h nats.Header) { propagator.Inject(ctx, carrier(h)) }

// Extract gives ctx with the trace context of h.
func Extract(ctx context.Context, h nats.Header) context.Context {
	if h == nil {
		return ctx
	}
	return propagator.Extract(ctx, carrier(h))
}

// Traceparent gives the W3C traceparent of ctx's span, empty if there is none.
func Traceparent(ctx context.Context) string {
	h := nats.Header{}
	Inject(ctx, h)
	return h.Get("traceparent")
}

// WithTraceparent gives ctx with a remote parent, as read from a record. A malformed one changes nothing.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return Extract(ctx, nats.Header{"traceparent": []string{traceparent}})
}

// Span starts a span called name. End it with the error that the work gave.
func Span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, s := otel.Tracer("github.com/weftmesh/weft").Start(ctx, name, trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		if err != nil {
			s.SetStatus(codes.Error, string(faultCode(err)))
		}
		s.End()
	}
}
