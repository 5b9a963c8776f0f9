package wire

import (
	"time"

	"github.com/weftmesh/weft/pkg/fault"
)

// Op is what a stream was opened for.
type Op string

// Operations of the node on weft-init.
const (
	OpStart   Op = "start"  // Spec, Again; then like attach
	OpAttach  Op = "attach" // Process, At, Acked, Reader
	OpStdin   Op = "stdin"  // Process
	OpList    Op = "list"
	OpWait    Op = "wait"   // Process
	OpSignal  Op = "signal" // Process, Signal, Target
	OpStop    Op = "stop"   // Process, Grace
	OpResize  Op = "resize" // Process, Size
	OpForget  Op = "forget" // Process
	OpKillAll Op = "killall"
	OpUsage   Op = "usage"
	OpDial    Op = "dial" // Network, Addr, As

	OpStat   Op = "stat"   // As, Path
	OpRead   Op = "read"   // As, Path, Offset, Length
	OpWrite  Op = "write"  // As, Path, Mode
	OpMkdir  Op = "mkdir"  // As, Path, Mode, Deep
	OpRemove Op = "remove" // As, Path, Deep
)

// OpForward is the operation of weft-init on the node: Name.
const OpForward Op = "forward"

// Request is the first message on a stream. Each operation reads the fields named beside it.
type Request struct {
	Op      Op            `json:"op"`
	Process string        `json:"process,omitempty"`
	Spec    *ProcessSpec  `json:"spec,omitempty"`
	Again   bool          `json:"again,omitempty"` // a start that is repeated: the id may be there
	At      *Offsets      `json:"at,omitempty"`
	Acked   *Offsets      `json:"acked,omitempty"`
	Reader  string        `json:"reader,omitempty"`
	Signal  int           `json:"signal,omitempty"`
	Target  Target        `json:"target,omitempty"`
	Grace   time.Duration `json:"grace_ns,omitempty"`
	Size    *Size         `json:"size,omitempty"`
	As      *Identity     `json:"as,omitempty"`
	Path    Text          `json:"path,omitempty"`
	To      Text          `json:"to,omitempty"`
	Offset  int64         `json:"offset,omitempty"`
	Length  int64         `json:"length,omitempty"`
	Mode    uint32        `json:"mode,omitempty"`
	Deep    bool          `json:"deep,omitempty"`
	Network string        `json:"network,omitempty"`
	Addr    string        `json:"addr,omitempty"`
	Name    string        `json:"name,omitempty"`
	Files   *FileQuery    `json:"files,omitempty"`
	Limits  *Limits       `json:"limits,omitempty"`
}

// Reply answers a Request that went well.
type Reply struct {
	Process   *ProcessInfo  `json:"process,omitempty"`
	Processes []ProcessInfo `json:"processes,omitempty"`
	Exit      *Exit         `json:"exit,omitempty"`
	Accepted  uint64        `json:"accepted,omitempty"`
	File      *FileInfo     `json:"file,omitempty"`
	Usage     *Usage        `json:"usage,omitempty"`
	Tree      *Tree         `json:"tree,omitempty"`
}

// Error answers one that did not. The sentence may be shown to whoever asked.
type Error struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

// ErrorOf makes what is sent of err.
func ErrorOf(err error) Error {
	code, message := fault.Public(err)
	return Error{Code: code, Message: message}
}

// Fault is the error that the other side gets of it.
func (e Error) Fault() error { return fault.FromWire(string(e.Code), e.Message) }
