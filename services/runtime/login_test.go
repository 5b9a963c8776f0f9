package runtime

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/meshtest"
)

// loginAt listens where a sandbox would find the mesh, and completes what connects there as planner.
func loginAt(t testing.TB, m *meshtest.Mesh, life time.Duration) string {
	t.Helper()
	minter, err := accounts.NewMinter(m.Tenants["acme"].Account, m.Tenants["acme"].AgentSeed)
	require.NoError(t, err)
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	pub, err := user.PublicKey()
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				s, err := net.Dial("tcp", m.Bus.NATS().Addr().String())
				if err != nil {
					_ = c.Close()
					return
				}
				_ = proxyLogin(ctx, c, s, func() (login, error) {
					jwt, err := minter.Agent("demo", "planner", "0123456789abcdefghij", pub, life)
					return login{jwt: jwt, sign: user.Sign}, err
				}, &activity{})
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); wg.Wait() })
	return "nats://" + l.Addr().String()
}

// A stock client without credentials works as the sandbox's principal, whatever it claims to be, and only as that.
func TestAStockClientLogsIn(t *testing.T) {
	m := meshtest.Start(t, "acme")
	url := loginAt(t, m, time.Hour)
	denied := make(chan error, 10)
	c, err := nats.Connect(url, nats.CustomInboxPrefix("_INBOX.planner.0123456789abcdefghij"), nats.UserInfo("admin", "secret"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	require.NoError(t, err)
	defer c.Close()
	require.Empty(t, c.DiscoveredServers(), "it learns of no server")
	require.False(t, strings.Contains(c.ConnectedUrl(), m.Bus.NATS().Addr().String()))
	ack, err := c.Request("weft.v1.msg.acme.demo.reviewer.planner", bytes.Repeat([]byte("x"), 200_000), 5*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(ack.Data), "MSG-acme")
	require.NoError(t, c.Publish("weft.v1.msg.acme.demo.reviewer.boss", nil))
	require.ErrorContains(t, <-denied, "Permissions Violation")
}

// Its JWT runs out: the server ends the connection, the client comes back, and is given a new one.
func TestAnExpiredLoginIsRenewed(t *testing.T) {
	m := meshtest.Start(t, "acme")
	back := make(chan struct{}, 10)
	c, err := nats.Connect(loginAt(t, m, 2*time.Second), nats.CustomInboxPrefix("_INBOX.planner.0123456789abcdefghij"), nats.ReconnectWait(50*time.Millisecond),
		nats.IgnoreAuthErrorAbort(), nats.MaxReconnects(-1), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	require.NoError(t, err)
	defer c.Close()
	select {
	case <-back:
	case <-time.After(10 * time.Second):
		t.Fatal("it did not come back")
	}
	_, err = c.Request("weft.v1.msg.acme.demo.reviewer.planner", []byte("{}"), 5*time.Second)
	require.NoError(t, err)
}

// talk lets a client and a server say something to each other through the proxy, and gives what arrived at each.
func talk(t testing.TB, server, client string) (toClient, toServer string) {
	t.Helper()
	c, pc := net.Pipe()
	s, ps := net.Pipe()
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	wg.Go(func() {
		_ = proxyLogin(ctx, pc, ps, func() (login, error) {
			return login{jwt: "JWT", sign: func(n []byte) ([]byte, error) { return append([]byte("signed "), n...), nil }}, nil
		}, &activity{})
	})
	var atClient, atServer []byte
	said, left := make(chan struct{}), make(chan struct{})
	wg.Go(func() { atClient, _ = io.ReadAll(c) })
	wg.Go(func() { atServer, _ = io.ReadAll(s) })
	wg.Go(func() { // a pipe's write returns when the proxy has taken it, or has closed
		_, _ = io.WriteString(s, server)
		close(said)
		<-left // the server stays, or the client's words would find no one
		_ = s.Close()
	})
	wg.Go(func() {
		_, _ = io.WriteString(c, client)
		<-said
		time.Sleep(50 * time.Millisecond) // for what the proxy has taken and not yet passed on
		_ = c.Close()
		close(left)
	})
	wg.Wait()
	return string(atClient), string(atServer)
}

func TestWhatPassesTheLogin(t *testing.T) {
	info := `INFO {"server_id":"S","nonce":"N","client_ip":"10.1.2.3","connect_urls":["10.0.0.1:4222"],"max_payload":1024,"auth_required":true,"host":"h","xkey":"X","cluster":"c"}` + "\r\n"
	atClient, atServer := talk(t, info+"PING\r\n"+info+"MSG a 1 3\r\nx\r\n\r\n", `CONNECT {"verbose":false,"user":"u","pass":"p","jwt":"forged","sig":"s","auth_token":"t","nkey":"k","tls_required":true,"name":"n","account":"X"}`+"\r\nPONG\r\n")
	for line := range strings.Lines(atClient) {
		if arg, ok := strings.CutPrefix(line, "INFO "); ok {
			var v map[string]any
			require.NoError(t, json.Unmarshal([]byte(arg), &v))
			require.Equal(t, map[string]any{"server_id": "S", "max_payload": 1024.0}, v)
		}
	}
	require.Contains(t, atClient, "PING\r\n")
	require.Contains(t, atClient, "MSG a 1 3\r\nx\r\n\r\n")
	connect, rest, _ := strings.Cut(atServer, "\r\n")
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(connect, "CONNECT ")), &v))
	require.Equal(t, map[string]any{"verbose": false, "name": "n", "jwt": "JWT", "sig": "c2lnbmVkIE4"}, v)
	require.Equal(t, "PONG\r\n", rest)

	for name, c := range map[string]struct{ server, client, toServer string }{
		"a second login":             {info, "CONNECT {}\r\nPING\r\nCONNECT {\"user\":\"root\"}\r\nPUB a 0\r\n\r\n", "PING\r\n"},
		"a login inside a payload":   {info, "CONNECT {}\r\nPUB a 12\r\nCONNECT {}\r\n\r\nPING\r\n", "PUB a 12\r\nCONNECT {}\r\n\r\nPING\r\n"},
		"a payload that is too long": {info, "CONNECT {}\r\nPUB a 99999999999\r\nx", ""},
		"a payload that is negative": {info, "CONNECT {}\r\nPUB a -5\r\nx", ""},
		"an unknown verb":            {info, "CONNECT {}\r\nSYS x\r\n", ""},
		"an endless line":            {info, "CONNECT {}\r\nSUB " + strings.Repeat("a", 100_000), ""},
	} {
		_, atServer := talk(t, c.server, c.client)
		_, rest, ok := strings.Cut(atServer, "\r\n")
		require.True(t, ok, name)
		require.Equal(t, c.toServer, rest, name)
	}
	for name, c := range map[string]struct{ server, client string }{
		"no INFO":            {"HELLO\r\n", "CONNECT {}\r\n"},
		"no CONNECT":         {info, "PING\r\n"},
		"no JSON":            {info, "CONNECT user=root\r\n"},
		"an endless CONNECT": {info, "CONNECT {" + strings.Repeat(" ", 100_000)},
		"a server with TLS":  {`INFO {"tls_required":true}` + "\r\n", "CONNECT {}\r\n"},
	} {
		_, atServer := talk(t, c.server, c.client)
		require.Empty(t, atServer, name)
	}
}

// Whatever a client sends, nothing of it passes as a CONNECT, and what passes is what it sent.
func FuzzClientToServer(f *testing.F) {
	for _, s := range []string{"PING\r\n", "PUB a 5\r\nhello\r\n", "HPUB a 3 8\r\nabchello\r\n", "SUB a 1\r\nUNSUB 1\r\n", "connect {}\r\n", "PUB a 5\r\nCONNECT {}\r\n", "pub a b 2\r\nxx\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		_ = carry(&out, bufio.NewReaderSize(bytes.NewReader(in), 4096), clientVerb)
		require.True(t, bytes.HasPrefix(in, out.Bytes()), "%q became %q", in, out.Bytes())
		rest := bufio.NewReader(&out)
		for {
			line, err := rest.ReadSlice('\n')
			if err != nil {
				return
			}
			require.NotEqual(t, "CONNECT", first(line))
			if v := first(line); v == "PUB" || v == "HPUB" {
				n, err := size(line)
				require.NoError(t, err)
				if _, err := rest.Discard(n); err != nil {
					return
				}
			}
		}
	})
}

func FuzzCompleteConnect(f *testing.F) {
	f.Add([]byte(`CONNECT {"name":"x","jwt":"y"}` + "\r\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		out, err := completeConnect(line, "n", login{jwt: "JWT", sign: func([]byte) ([]byte, error) { return []byte("s"), nil }})
		if err != nil {
			return
		}
		require.Equal(t, 1, bytes.Count(out, []byte("\n")), "one line")
		var v map[string]any
		require.NoError(t, json.Unmarshal(out[len("CONNECT "):], &v))
		require.Equal(t, "JWT", v["jwt"])
		for _, k := range []string{"user", "pass", "nkey", "auth_token"} {
			require.NotContains(t, v, k)
		}
	})
}

func BenchmarkLogin(b *testing.B) {
	m := meshtest.Start(b, "acme")
	url := loginAt(b, m, time.Hour)
	for name, c := range map[string]string{"proxied": url} {
		nc, err := nats.Connect(c, nats.CustomInboxPrefix("_INBOX.planner.0123456789abcdefghij"))
		require.NoError(b, err)
		defer nc.Close()
		b.Run(fmt.Sprint("request/", name), func(b *testing.B) {
			for b.Loop() {
				_, err := nc.Request("weft.v1.msg.acme.demo.reviewer.planner", []byte("{}"), 5*time.Second)
				require.NoError(b, err)
			}
		})
	}
}
