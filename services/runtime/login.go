package runtime

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// A sandbox's NATS client logs in without credentials. The node completes the login as the sandbox's
// principal and keeps to itself what only it may know: nonces, tokens, and where the mesh's servers are.
//
// Both directions are read as the protocol that they are, not just copied. Towards the client, every
// INFO is filtered, also those that the server sends later. Towards the server, a CONNECT counts once,
// so that what runs inside can't log in again as somebody else.

// Bounds of what a client may send before and after it is logged in.
const (
	loginTimeout   = 10 * time.Second
	maxControlLine = 32 << 10 // bytes; the servers' own limit is 4 KiB
	maxInfoLine    = 256 << 10
	maxPayload     = 8 << 20
	maxLogins      = 32 // connections of one sandbox at once
)

// login is what a connection is completed with.
type login struct {
	jwt  string
	sign func(nonce []byte) ([]byte, error)
}

// passedInfo are the fields of INFO that a client needs. Nothing else reaches it.
var passedInfo = []string{"server_id", "server_name", "version", "proto", "go", "headers", "max_payload", "jetstream", "client_id", "ldm", "git_commit", "domain"}

// passedConnect are the fields of CONNECT that a client decides.
var passedConnect = []string{"verbose", "pedantic", "lang", "version", "protocol", "name", "echo", "headers", "no_responders"}

var errProtocol = errors.New("not the NATS protocol")

// proxyLogin completes the login that client begins on server, and carries both directions until
// either side ends or ctx is done. It closes both, and counts what is carried as use.
func proxyLogin(ctx context.Context, client, server net.Conn, as func() (login, error), use *activity) error {
	var once sync.Once
	shut := func() { once.Do(func() { _ = client.Close(); _ = server.Close() }) }
	defer shut()
	defer context.AfterFunc(ctx, shut)()
	fromServer, fromClient := bufio.NewReaderSize(server, maxInfoLine), bufio.NewReaderSize(client, maxControlLine)
	limit := time.Now().Add(loginTimeout)
	if err := errors.Join(client.SetDeadline(limit), server.SetDeadline(limit)); err != nil {
		return err
	}
	if err := shakeHands(client, server, fromClient, fromServer, as); err != nil {
		return err
	}
	if err := errors.Join(client.SetDeadline(time.Time{}), server.SetDeadline(time.Time{})); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer shut()
		done <- carry(server, fromClient, use.verbs(clientVerb))
	}()
	err := carry(client, fromServer, use.verbs(serverVerb))
	shut()
	return errors.Join(err, <-done)
}

// shakeHands takes the server's INFO and the client's CONNECT, and gives each what the other may see of it.
func shakeHands(client, server io.Writer, fromClient, fromServer *bufio.Reader, as func() (login, error)) error {
	line, err := fromServer.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read INFO: %w", err)
	}
	info, ok := argument(line, "INFO")
	if !ok {
		return fmt.Errorf("the server begins with %.20q: %w", line, errProtocol)
	}
	var says struct {
		Nonce string `json:"nonce"`
		TLS   bool   `json:"tls_required"`
	}
	if err := json.Unmarshal(info, &says); err != nil {
		return fmt.Errorf("INFO: %w", errProtocol)
	}
	if says.TLS {
		return errors.New("the server wants TLS, which whoever dials it has to do")
	}
	filtered, err := filterInfo(line)
	if err != nil {
		return err
	}
	if _, err := client.Write(filtered); err != nil {
		return err
	}
	line, err = fromClient.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read CONNECT: %w", err)
	}
	l, err := as()
	if err != nil {
		return err
	}
	connect, err := completeConnect(line, says.Nonce, l)
	if err != nil {
		return err
	}
	_, err = server.Write(connect)
	return err
}

// filterInfo gives an INFO line with what a client inside needs to know.
func filterInfo(line []byte) ([]byte, error) {
	arg, ok := argument(line, "INFO")
	var all map[string]json.RawMessage
	if !ok || json.Unmarshal(arg, &all) != nil {
		return nil, fmt.Errorf("INFO: %w", errProtocol)
	}
	return encode("INFO", pick(all, passedInfo))
}

// completeConnect puts the sandbox's own credentials into a client's CONNECT, whatever it brought.
func completeConnect(line []byte, nonce string, l login) ([]byte, error) {
	arg, ok := argument(line, "CONNECT")
	var all map[string]json.RawMessage
	if !ok || json.Unmarshal(arg, &all) != nil {
		return nil, fmt.Errorf("CONNECT: %w", errProtocol)
	}
	out := pick(all, passedConnect)
	sig, err := l.sign([]byte(nonce))
	if err != nil {
		return nil, err
	}
	out["jwt"], _ = json.Marshal(l.jwt)
	out["sig"], _ = json.Marshal(base64.RawURLEncoding.EncodeToString(sig))
	return encode("CONNECT", out)
}

func pick(from map[string]json.RawMessage, names []string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, n := range names {
		if v, ok := from[n]; ok {
			out[n] = v
		}
	}
	return out
}

func encode(verb string, v map[string]json.RawMessage) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, errProtocol)
	}
	return fmt.Appendf(nil, "%s %s\r\n", verb, b), nil
}

// argument gives what follows verb on a line, if the line has that verb.
func argument(line []byte, verb string) ([]byte, bool) {
	if len(line) <= len(verb) || !bytes.EqualFold(line[:len(verb)], []byte(verb)) || line[len(verb)] != ' ' && line[len(verb)] != '\t' {
		return nil, false
	}
	return bytes.TrimSpace(line[len(verb):]), true
}

// carry copies one direction, line by line with the payloads that lines announce. verb says of each
// line what is to be sent for it and how many bytes of payload follow.
func carry(to io.Writer, from *bufio.Reader, verb func(line []byte) (out []byte, payload int, err error)) error {
	w := bufio.NewWriterSize(to, 64<<10)
	for {
		if from.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		line, err := from.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errProtocol
			}
			return errors.Join(err, w.Flush())
		}
		out, payload, err := verb(line)
		if err != nil {
			return errors.Join(err, w.Flush())
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		if payload > 0 {
			if _, err := io.CopyN(w, from, int64(payload)); err != nil {
				return err
			}
		}
	}
}

// first gives a line's first word in upper case.
func first(line []byte) string {
	n := bytes.IndexAny(line, " \t\r\n")
	if n < 0 || n > 8 {
		return ""
	}
	return string(bytes.ToUpper(line[:n]))
}

// size gives the bytes that follow a line whose last field is their number: the payload and its CR LF.
func size(line []byte) (int, error) {
	f := bytes.Fields(line)
	n, err := strconv.Atoi(string(f[len(f)-1]))
	if len(f) < 3 || err != nil || n < 0 || n > maxPayload {
		return 0, errProtocol
	}
	return n + 2, nil
}

func serverVerb(line []byte) ([]byte, int, error) {
	switch first(line) {
	case "MSG", "HMSG":
		n, err := size(line)
		return line, n, err
	case "PING", "PONG", "+OK", "-ERR":
		return line, 0, nil
	case "INFO":
		out, err := filterInfo(line)
		return out, 0, err
	}
	return nil, 0, errProtocol
}

func clientVerb(line []byte) ([]byte, int, error) {
	switch first(line) {
	case "PUB", "HPUB":
		n, err := size(line)
		return line, n, err
	case "SUB", "UNSUB", "PING", "PONG":
		return line, 0, nil
	}
	return nil, 0, errProtocol // a second CONNECT among others
}
