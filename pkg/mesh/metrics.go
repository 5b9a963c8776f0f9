package mesh

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts and times what a connection serves and consumes. A nil *Metrics measures nothing.
type Metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics registers the mesh's metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_operations_total",
			Help: "Operations served and messages consumed, by service, operation and result code (ok or a fault code)."},
			[]string{"service", "operation", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weft_operation_seconds",
			Help:    "How long they took, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 14)},
			[]string{"service", "operation"}),
	}
	reg.MustRegister(m.calls, m.duration)
	return m
}

func (m *Metrics) observe(service, op string, err error, d time.Duration) {
	if m == nil {
		return
	}
	code := "ok"
	if err != nil {
		code = string(faultCode(err))
	}
	m.calls.WithLabelValues(service, op, code).Inc()
	m.duration.WithLabelValues(service, op).Observe(d.Seconds())
}
