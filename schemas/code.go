package schemas

// Code is the closed set of reasons for which a request can fail. It travels in the
// Nats-Service-Error-Code header; a sentence that says what to do travels beside it.
type Code string

// The codes. A client decides by the code, a person by the sentence.
const (
	Invalid     Code = "invalid"     // the request can never succeed as it is
	NotFound    Code = "not_found"   // what it names does not exist
	Conflict    Code = "conflict"    // it lost against a change made before it
	Denied      Code = "denied"      // the caller may not do this
	Exhausted   Code = "exhausted"   // a quota or a limit is used up
	Unavailable Code = "unavailable" // a part is missing or down; try again later
	Deadline    Code = "deadline"    // it took longer than allowed
	Internal    Code = "internal"    // a defect of ours; the cause is in the log
)

// Codes lists every code, in the order of their documentation.
func Codes() []Code {
	return []Code{Invalid, NotFound, Conflict, Denied, Exhausted, Unavailable, Deadline, Internal}
}

// Valid reports whether c is one of the closed set.
func (c Code) Valid() bool {
	for _, k := range Codes() {
		if c == k {
			return true
		}
	}
	return false
}

// Headers of a reply that failed: the code, and the sentence.
const (
	HeaderErrorCode = "Nats-Service-Error-Code"
	HeaderError     = "Nats-Service-Error"
)
