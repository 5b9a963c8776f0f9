package stream

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
)

func TestSubject(t *testing.T) {
	id := schemas.NewID()
	got, err := Subject("weft.v1.req.acme.demo.alice.filesystem.get", id)
	require.NoError(t, err)
	require.Equal(t, "weft.v1.req.acme.demo.alice.filesystem.s."+id, got)
	for _, bad := range [][2]string{
		{"weft.v1.req.acme.demo.*.filesystem.get", id},
		{"weft.v1.req.acme.demo.alice.filesystem.get", "short"},
		{"weft.v1.req.acme.demo.alice.filesystem.get", "*"},
		{"$JS.API.STREAM.LIST", id},
	} {
		_, err := Subject(bad[0], bad[1])
		require.Error(t, err, "%v", bad)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("data", "stdout", "0", []byte("x"))
	f.Add("data", "stdout", "9223372036854775807", []byte("xx"))
	f.Add("status", "", "", []byte(`{"channels":{"a":{"sent":1,"received":2,"limit":3,"again":true}},"ask":true}`))
	f.Add("status", "", "", []byte(`{"channels":{"a":{"sent":-1,"received":9223372036854775807,"limit":9223372036854775807,"end":"eof"}}}`))
	f.Add("reset", "", "", []byte(`{"code":"denied","message":"no"}`))
	f.Add("opened", "", "", []byte(`{}`))
	f.Fuzz(func(t *testing.T, kind, channel, offset string, body []byte) {
		h := nats.Header{HeaderFrame: {kind}, schemas.HeaderStream: {channel}, schemas.HeaderOffset: {offset}}
		fr, err := decode(h, body)
		if err != nil {
			return
		}
		if fr.kind == frameData && (fr.offset < 0 || len(fr.body) == 0 || len(fr.body) > MaxFrame || checkChannel(fr.channel) != nil) {
			t.Fatalf("accepted %+v", fr)
		}
		// Whatever is well-formed is answered, or ends the session; it never panics and never makes the
		// session hold more than its windows.
		for _, client := range []bool{true, false} {
			s := newSession("x", client, nowhere{}, Timing{})
			_, _ = s.Channel("a").Write([]byte("abc"))
			s.receive(&nats.Msg{Header: h, Data: body})
			s.receive(&nats.Msg{Header: h, Data: body})
			s.mu.Lock()
			for name, c := range s.channels {
				if held := c.in.received - c.in.consumed; held < 0 || held > Window || c.out.written-c.out.acked > Window || c.out.next < c.out.acked {
					t.Fatalf("channel %s: %+v", name, c)
				}
			}
			s.mu.Unlock()
		}
	})
}

// nowhere takes every frame.
type nowhere struct{}

func (nowhere) send(*nats.Msg, bool) error { return nil }
