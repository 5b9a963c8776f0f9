package schemas

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// NoWorkspace stands in a subject where a request concerns the tenant as a whole.
const NoWorkspace = "-"

// IDLen is the length of every generated identifier: 100 bits in base32hex.
const IDLen = 20

var idEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// NewID makes a random identifier: 20 characters of lower-case base32hex, 100 bits, safe in
// subjects, paths and cgroup names.
func NewID() string {
	var b [13]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return encodeID(b[:])
}

// DerivedID makes the identifier that belongs to parts: the same parts always give the same one.
// Parts are length-prefixed before hashing, so that no two lists of parts collide by concatenation.
func DerivedID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write([]byte(p))
	}
	return encodeID(h.Sum(nil))
}

// TaskID is the identifier of the task that key submits: the first 100 bits of SHA-256 over
// tenant, workspace and key, so that a repeated submission finds the same subject.
func TaskID(tenant, workspace, key string) string { return DerivedID(tenant, workspace, key) }

func encodeID(b []byte) string {
	return strings.ToLower(idEncoding.EncodeToString(b[:13])[:IDLen])
}

// CheckID refuses what is not 20 characters of lower-case base32hex. what names the field in the error.
func CheckID(what, s string) error {
	if len(s) != IDLen {
		return fmt.Errorf("%s %q must be %d characters of 0-9 a-v", what, clip(s), IDLen)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'v') {
			return fmt.Errorf("%s %q must be %d characters of 0-9 a-v", what, clip(s), IDLen)
		}
	}
	return nil
}

// CheckName refuses what is not a DNS label (RFC 1123, 1 to 63 of a-z 0-9 -, not starting or ending
// with a hyphen): the form of tenants, workspaces, principals, agents, templates and nodes.
func CheckName(what, s string) error {
	bad := len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-'
	for i := 0; !bad && i < len(s); i++ {
		c := s[i]
		bad = (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	}
	if bad {
		return fmt.Errorf("%s %q must be a DNS label: 1 to 63 of a-z 0-9 and inner hyphens", what, clip(s))
	}
	return nil
}

// CheckWorkspace is CheckName that also takes "-", the tenant as a whole.
func CheckWorkspace(s string) error {
	if s == NoWorkspace {
		return nil
	}
	return CheckName("workspace", s)
}

// CheckKey refuses a submission key or client id that is empty, over 256 bytes, or has a control or
// non-ASCII character: keys travel in headers.
func CheckKey(what, s string) error {
	if len(s) == 0 || len(s) > 256 {
		return fmt.Errorf("%s must be 1 to 256 bytes long", what)
	}
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return fmt.Errorf("%s %q has a space, control or non-ASCII character", what, clip(s))
		}
	}
	return nil
}

// clip keeps an error sentence short whatever was sent.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
