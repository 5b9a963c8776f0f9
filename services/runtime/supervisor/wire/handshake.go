package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// KeySize of the key that a sandbox and its node share, in bytes.
	KeySize = 32
	// IDSize of a sandbox's id.
	IDSize = 20
	// Version of the protocol; both sides must have the same.
	Version = 1

	nonceSize    = 32
	helloSize    = 4 + IDSize + nonceSize
	labelInit    = "weft init"
	labelNode    = "weft node"
	accepted     = 0x06
	magic        = "WFT"
	challengeLen = nonceSize + sha256.Size
)

// Key authenticates one sandbox and its node to each other.
type Key [KeySize]byte

// String hides the key.
func (Key) String() string { return "[key]" }

// NewKey makes a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails, see crypto/rand
	return k
}

// ErrHandshake means that the other side does not hold the key, or does not speak this protocol.
var ErrHandshake = errors.New("handshake refused: the other side does not prove that it holds the key")

// The handshake. Each side proves the key by a MAC over both sides' fresh nonces under its own
// label, so that neither a recording nor a reflection is of use:
//
//	init → node   magic, version, sandbox id, nonce of init
//	node → init   nonce of node, MAC(node)
//	init → node   MAC(init)
//	node → init   accepted
//
// All of it has fixed lengths and must be done within timeout.

// HandshakeInit is weft-init's side.
func HandshakeInit(c net.Conn, id string, key Key, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if len(id) != IDSize {
		return fmt.Errorf("sandbox id %q must have %d characters", id, IDSize)
	}
	hello := append([]byte(magic), Version)
	hello = append(hello, id...)
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce)
	hello = append(hello, nonce...)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	var challenge [challengeLen]byte
	if _, err := io.ReadFull(c, challenge[:]); err != nil {
		return err
	}
	node := challenge[:nonceSize]
	if !hmac.Equal(challenge[nonceSize:], sum(key, labelNode, hello, node)) {
		return ErrHandshake
	}
	if _, err := c.Write(sum(key, labelInit, hello, node)); err != nil {
		return err
	}
	var last [1]byte
	if _, err := io.ReadFull(c, last[:]); err != nil {
		return err
	}
	if last[0] != accepted {
		return ErrHandshake
	}
	return c.SetDeadline(time.Time{})
}

// HandshakeNode is the node's side, for the sandbox id that the socket belongs to.
func HandshakeNode(c net.Conn, id string, key Key, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var hello [helloSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return err
	}
	if string(hello[:3]) != magic {
		return ErrHandshake
	}
	if v := hello[3]; v != Version {
		return fmt.Errorf("weft-init speaks version %d of the protocol, this node %d", v, Version)
	}
	if string(hello[4:4+IDSize]) != id {
		return ErrHandshake
	}
	nonce := make([]byte, nonceSize, challengeLen)
	_, _ = rand.Read(nonce)
	if _, err := c.Write(append(nonce, sum(key, labelNode, hello[:], nonce)...)); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(c, proof[:]); err != nil {
		return err
	}
	if !hmac.Equal(proof[:], sum(key, labelInit, hello[:], nonce)) {
		return ErrHandshake
	}
	if _, err := c.Write([]byte{accepted}); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// sum covers all that was said: hello holds the version, the id and the nonce of init.
func sum(key Key, label string, hello, nodeNonce []byte) []byte {
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte(label))
	m.Write(hello)
	m.Write(nodeNonce)
	return m.Sum(nil)
}
