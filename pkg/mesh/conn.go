package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
)

// Options say where and as whom to connect.
type Options struct {
	URL string // nats://host:port, or several with commas; unused where Dial is set
	// Dial gives connections that pass no socket, as the embedded server's InProcessConn does.
	Dial func() (net.Conn, error)
	// Credentials gives the user to log in as; asked again at every reconnect, so that an expired JWT is
	// replaced. Nil logs in without (inside a sandbox, where the node completes the login).
	Credentials func() (accounts.Credentials, error)
	// Name is the user's name. InboxPrefix is _INBOX.<name> if empty.
	Name        string
	InboxPrefix string
	JetStream   string // prefix of JetStream's API; accounts.NodeAPI for a node, else empty
	Logger      *slog.Logger
	Metrics     *Metrics
}

// Conn is one connection as one user. It reconnects for ever. Close ends it.
type Conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	name    string
	log     *slog.Logger
	metrics *Metrics

	mu      sync.Mutex
	waiting map[string][]chan struct{} // by subject: who wants to know of a denied publish
}

// Connect logs in and waits until the server has answered.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	c := &Conn{name: o.Name, log: o.Logger, metrics: o.Metrics, waiting: map[string][]chan struct{}{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	prefix := o.InboxPrefix
	if prefix == "" {
		prefix = accounts.InboxPrefix(o.Name)
	}
	opts := []nats.Option{
		nats.Name(o.Name), nats.CustomInboxPrefix(prefix),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(3),
		nats.Timeout(dialTimeout(ctx)), nats.PermissionErrOnSubscribe(true), nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(c.asyncError),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("mesh connection lost; reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { c.log.Info("mesh connection is back") }),
	}
	if o.Dial != nil {
		opts = append(opts, nats.SetCustomDialer(dialer(o.Dial)))
		if o.URL == "" {
			o.URL = "nats://in-process:4222"
		}
	}
	if o.Credentials != nil {
		opts = append(opts, login(o.Credentials))
	}
	nc, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, connectFault(err, o.URL)
	}
	c.nc = nc
	js := []jetstream.JetStreamOpt{jetstream.WithDefaultTimeout(10 * time.Second), jetstream.WithPublishAsyncMaxPending(4096)}
	if o.JetStream == "" {
		c.js, err = jetstream.New(nc, js...)
	} else {
		c.js, err = jetstream.NewWithAPIPrefix(nc, o.JetStream, js...)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func connectFault(err error, url string) error {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
		return fault.Wrap(err, fault.Denied, "the mesh at %s does not accept these credentials", url)
	}
	return fault.Wrap(err, fault.Unavailable, "no mesh answers at %s; is weftd running?", url)
}

func dialTimeout(ctx context.Context) time.Duration {
	if t, ok := ctx.Deadline(); ok {
		return max(time.Until(t), time.Millisecond)
	}
	return 5 * time.Second
}

// login asks for credentials at every (re)connect.
func login(get func() (accounts.Credentials, error)) nats.Option {
	var mu sync.Mutex
	var cur accounts.Credentials
	return nats.UserJWT(
		func() (string, error) {
			c, err := get()
			if err != nil {
				return "", err
			}
			mu.Lock()
			cur = c
			mu.Unlock()
			return c.JWT, nil
		},
		func(nonce []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			kp, err := nkeys.FromSeed(cur.Seed)
			if err != nil {
				return nil, err
			}
			defer kp.Wipe()
			return kp.Sign(nonce)
		})
}

// dialer makes the embedded server's connections look like dialled ones.
type dialer func() (net.Conn, error)

// Dial ignores the address: there is only one server.
func (d dialer) Dial(_, _ string) (net.Conn, error) { return d() }

// SkipTLSHandshake keeps the client from asking for TLS where no network lies between.
func (d dialer) SkipTLSHandshake() bool { return true }

// NATS is the connection itself.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// JetStream is its JetStream client. What it may do depends on the role.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// Name is the user's name: the service, the node or the principal.
func (c *Conn) Name() string { return c.name }

// Logger is the connection's logger.
func (c *Conn) Logger() *slog.Logger { return c.log }

// Close sends what is buffered, at most for a second, and closes.
func (c *Conn) Close() {
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(time.Second)
	}
	c.nc.Close()
}

var deniedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// asyncError receives what the server says outside of any reply. A denied publish is told to whoever
// published, instead of letting it run into its deadline.
func (c *Conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if m := deniedPublish.FindStringSubmatch(err.Error()); m != nil {
		c.mu.Lock()
		for _, ch := range c.waiting[m[1]] {
			close(ch)
		}
		delete(c.waiting, m[1])
		c.mu.Unlock()
		c.log.Warn("the server denied a publish", "subject", m[1])
		return
	}
	if sub != nil {
		c.log.Warn("mesh error", "err", err, "subject", sub.Subject)
		return
	}
	c.log.Warn("mesh error", "err", err)
}

// watchDenied gives a channel that is closed when the server denies a publish to subject.
func (c *Conn) watchDenied(subject string) (denied <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	c.mu.Lock()
	c.waiting[subject] = append(c.waiting[subject], ch)
	c.mu.Unlock()
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		l := c.waiting[subject]
		for i := range l {
			if l[i] == ch {
				l = append(l[:i], l[i+1:]...)
				break
			}
		}
		if len(l) == 0 {
			delete(c.waiting, subject)
		} else {
			c.waiting[subject] = l
		}
	}
}

// deniedFault is the failure for a publish that the server did not allow.
func (c *Conn) deniedFault(subject string) error {
	return fault.New(fault.Denied, "%s may not publish to %s", c.name, subject)
}

// wrapNATS gives the failure for an error of the client library.
func wrapNATS(err error, subject string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return fault.Wrap(err, fault.Unavailable, "nobody answers on %s; is the service running?", subject)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fault.Wrap(err, fault.Deadline, "no answer in time on %s", subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return fault.Wrap(err, fault.Invalid, "the message is larger than the server takes")
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return fault.Wrap(err, fault.Unavailable, "the mesh connection is closed")
	}
	return fmt.Errorf("%s: %w", subject, err)
}
