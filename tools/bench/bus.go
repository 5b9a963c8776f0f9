package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
)

// busBenchmarks need the embedded bus and no service. Every write is fsynced, as in earnest.
var busBenchmarks = []Benchmark{
	{"publish_sync", "a durable publish through pkg/mesh, beside bare nats.go", publishSync},
	{"publish_async", "durable publishes in flight through pkg/mesh, beside bare nats.go", publishAsync},
	{"record_update", "a compare-and-set change of a record, beside a bare KV update", recordUpdate},
}

var payload = []byte(`{"text":"` + string(make256()) + `"}`)

func make256() []byte {
	b := make([]byte, 244)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// turns is how many publishes one sample has: one alone is too short for the clock of a busy machine.
const turns = 20

func publishSync(ctx context.Context, e *Env) ([]Result, error) {
	c, err := e.service(ctx, schemas.WorkspaceManager)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	subject := "weft.v1.msg.bench.demo.a.b"
	ts, err := each(ctx, 200,
		func() error {
			for range turns {
				if _, err := c.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: payload}); err != nil {
					return err
				}
			}
			return nil
		},
		func() error {
			for range turns {
				if _, err := c.JetStream().PublishMsg(ctx, &nats.Msg{Subject: subject, Data: payload}); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	rate := func(ms []float64) []float64 { return perSecond(ms, turns) }
	return []Result{newResult("publish_sync", "msg/s", rate(ts[0])).aim("≥ 0.9 of nats.go").beside("nats.go PublishMsg", rate(ts[1]))}, nil
}

func perSecond(ms []float64, n int) []float64 {
	out := make([]float64, len(ms))
	for i, m := range ms {
		out[i] = float64(n) / (m / 1e3)
	}
	return out
}

func publishAsync(ctx context.Context, e *Env) ([]Result, error) {
	c, err := e.service(ctx, schemas.WorkspaceManager)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	const n = 2000
	// Output is what is published asynchronously; its stream persists asynchronously, too.
	subject := "weft.v1.msg.bench.demo.a.c"
	wait := func(js jetstream.JetStream) error {
		select {
		case <-js.PublishAsyncComplete():
			return nil
		case <-time.After(30 * time.Second):
			return fmt.Errorf("%d publishes were not acknowledged within 30 s", js.PublishAsyncPending())
		}
	}
	bare, err := jetstream.New(c.NATS(), jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return nil, err
	}
	ts, err := each(ctx, 15,
		func() error {
			for range n {
				if _, err := c.PublishAsync(&nats.Msg{Subject: subject, Data: payload}); err != nil {
					return err
				}
			}
			return wait(c.JetStream())
		},
		func() error {
			for range n {
				if _, err := bare.PublishMsgAsync(&nats.Msg{Subject: subject, Data: payload}); err != nil {
					return err
				}
			}
			return wait(bare)
		})
	if err != nil {
		return nil, err
	}
	return []Result{newResult("publish_async", "msg/s", perSecond(ts[0], n)).aim("≥ 0.9 of nats.go").beside("nats.go PublishMsgAsync", perSecond(ts[1], n))}, nil
}

type benchRecord struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func recordUpdate(ctx context.Context, e *Env) ([]Result, error) {
	c, err := e.service(ctx, schemas.WorkspaceManager)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	st := records.New[benchRecord](c, "workspace", 1)
	k := records.Key{Tenant: "bench", Workspace: "demo", ID: schemas.NewID()}
	r, err := st.Create(ctx, k, "created", benchRecord{Text: string(payload[:200])})
	if err != nil {
		return nil, err
	}
	kv, err := c.JetStream().CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "bench"})
	if err != nil {
		return nil, err
	}
	rev, err := kv.Put(ctx, "k", payload)
	if err != nil {
		return nil, err
	}
	ts, err := each(ctx, 1000,
		func() error {
			v := r.Value
			v.N++
			var err error
			r, err = st.Write(ctx, k, r.Sequence, "changed", v)
			return err
		},
		func() error {
			var err error
			rev, err = kv.Update(ctx, "k", payload, rev)
			return err
		},
		func() error {
			_, err := st.Update(ctx, k, func(v *benchRecord) (string, error) { v.N++; return "changed", nil })
			if err == nil {
				r, err = st.Get(ctx, k)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	return []Result{newResult("record_update", "ms", ts[0]).beside("KV update", ts[1]).beside("read, change, write, read", ts[2])}, nil
}
