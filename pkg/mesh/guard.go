package mesh

import (
	"context"
)

// Guarded gives endpoints that ask may before each call, and refuse with its error. A stream that is open
// already goes on.
func Guarded(may func() error, eps ...Endpoint) []Endpoint {
	out := make([]Endpoint, len(eps))
	for i, ep := range eps {
		call := ep.call
		ep.call = func(ctx context.Context, by Caller, body []byte, r *replier) error {
			if err := may(); err != nil {
				return err
			}
			return call(ctx, by, body, r)
		}
		out[i] = ep
	}
	return out
}
