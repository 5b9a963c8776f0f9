package schemas

import "strings"

// Headers of the envelope: CloudEvents 1.0 in binary mode over NATS, and W3C trace context. Header
// names are case-sensitive in NATS; these are the exact spellings.
const (
	HeaderID          = "ce-id"
	HeaderType        = "ce-type"
	HeaderSource      = "ce-source"
	HeaderSubject     = "ce-subject"
	HeaderTime        = "ce-time"
	HeaderSpecVersion = "ce-specversion"
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// Headers of live output: which stream a chunk belongs to (stdout, stderr or log), the offset in
// bytes of its first byte in that stream, and on the last chunk of a stream "true". A stream without output has no chunk.
const (
	HeaderStream = "Weft-Stream"
	HeaderOffset = "Weft-Offset"
	HeaderEOF    = "Weft-Eof"
)

// HeaderSchema carries the version of a record's shape. Readers take every version up to their own.
const HeaderSchema = "Weft-Schema"

// HeaderDeadline carries how many milliseconds the caller still waits for the answer.
const HeaderDeadline = "Weft-Timeout-Ms"

// Limits of the contract.
const (
	MaxSubmission = 1 << 20   // bytes of a submission; larger input is a file in the workspace
	MaxBody       = 4 << 20   // bytes of any other request or reply
	MaxFrame      = 64 << 10  // bytes of one frame of a byte stream
	StreamWindow  = 1 << 20   // bytes in flight on a byte stream without an acknowledgement
	MaxDepth      = 8         // how many triggers may follow one another
	MaxMessage    = 256 << 10 // bytes of a message between principals
)

// EventType is the ce-type of a change of a record: dev.weft.<entity>.<event>.v1.
func EventType(entity, event string) string { return "dev.weft." + entity + "." + event + ".v1" }

// ParseEventType gives the entity and the event of a ce-type; ok is false for a foreign type.
func ParseEventType(t string) (entity, event string, ok bool) {
	p := strings.Split(t, ".")
	if len(p) != 5 || p[0] != "dev" || p[1] != "weft" || p[4] != "v1" {
		return "", "", false
	}
	return p[2], p[3], true
}

// Services of the mesh, as they stand in subjects. No node may take one of these names.
const (
	WorkspaceManager = "workspace-manager"
	Runtime          = "runtime"
	Filesystem       = "filesystem"
	Secrets          = "secrets"
	Memory           = "memory"
	Gateway          = "gateway"
	Operator         = "operator"
)

// Reserved reports whether a node may not be called s, because a service or a role is.
func Reserved(s string) bool {
	switch s {
	case WorkspaceManager, Runtime, Filesystem, Secrets, Memory, Gateway, Operator, "provisioner", "system":
		return true
	}
	return false
}
