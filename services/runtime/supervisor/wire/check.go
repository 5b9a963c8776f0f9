package wire

import (
	"math"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// Limits of a ProcessSpec. Linux itself takes at most 128 KiB per string and 2 MiB for all.
const (
	MaxArgs       = 16 << 10
	MaxString     = 128<<10 - 1
	MaxStrings    = 2 << 20
	MaxLabels     = 4 << 10
	MinBuffer     = 4 << 10
	MaxBuffer     = 64 << 20
	DefaultBuffer = 1 << 20
	DefaultGrace  = 5 * time.Second
)

// Group ids that weft-init hands out itself, one to each process's tree: no payload may ask for them.
const (
	TagFirst = 61184
	TagCount = 4096
)

// InitPath is where process 1's program is mounted, and NoProgram what can never be there, whatever an image or a layer holds:
// a name below a file. Starting it is a rehearsal of a start; it executes nothing, so it may come before all payload.
const (
	InitPath  = "/.weft/init"
	NoProgram = InitPath + "/none"
)

// ReservedPIDs of a sandbox's limit of processes and threads are process 1's own: its threads count. Payload
// gets the rest, by RLIMIT_NPROC, which it inherits; of a limit below twice this, half.
const ReservedPIDs = 64

// Check refuses a spec that can never be run, and fills in what was left empty.
func (s *ProcessSpec) Check() error {
	if err := schemas.CheckID("process id", s.ID); err != nil {
		return fault.New(fault.Invalid, "%s", err)
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return fault.New(fault.Invalid, "argv is empty: give a command")
	}
	if len(s.Argv) > MaxArgs || len(s.Env) > MaxArgs {
		return fault.New(fault.Invalid, "more than %d arguments or environment variables", MaxArgs)
	}
	if err := checkStrings("argv", s.Argv); err != nil {
		return err
	}
	if err := checkStrings("environment", s.Env); err != nil {
		return err
	}
	for _, e := range s.Env {
		if i := strings.IndexByte(string(e), '='); i < 1 {
			return fault.New(fault.Invalid, "environment %.40q is not of the form NAME=value", string(e))
		}
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	if err := CheckPath("working directory", s.Dir); err != nil {
		return err
	}
	if err := s.Identity.Check(); err != nil {
		return err
	}
	return s.checkLimits()
}

func (s *ProcessSpec) checkLimits() error {
	switch s.Output {
	case "":
		s.Output = OutputAttached
	case OutputAttached, OutputRing, OutputLossless:
	default:
		return fault.New(fault.Invalid, "output mode %q is none of attached, ring, lossless", s.Output)
	}
	if s.Buffer == 0 {
		s.Buffer = DefaultBuffer
	}
	if s.Buffer < MinBuffer || s.Buffer > MaxBuffer {
		return fault.New(fault.Invalid, "buffer of %d bytes: it must be %d to %d", s.Buffer, MinBuffer, MaxBuffer)
	}
	if s.Timeout < 0 || s.Grace < 0 {
		return fault.New(fault.Invalid, "timeout and grace must not be negative")
	}
	if s.Grace == 0 {
		s.Grace = DefaultGrace
	}
	labels := 0
	for k, v := range s.Labels {
		labels += len(k) + len(v)
	}
	if labels > MaxLabels {
		return fault.New(fault.Invalid, "labels of %d bytes: at most %d", labels, MaxLabels)
	}
	for _, l := range s.Rlimits {
		if _, ok := RlimitNumber(l.Name); !ok {
			return fault.New(fault.Invalid, "rlimit %.40q is unknown: use names such as nofile, nproc, as, cpu", l.Name)
		}
		if l.Soft > l.Hard {
			return fault.New(fault.Invalid, "rlimit %s: soft %d is over hard %d", l.Name, l.Soft, l.Hard)
		}
	}
	return nil
}

// Check refuses identities that nobody can have. Whether uid 0 may be asked for, the sandbox says.
func (id Identity) Check() error {
	if id.UID == math.MaxUint32 || id.GID == math.MaxUint32 {
		return fault.New(fault.Invalid, "uid %d with group %d is nobody: name a user", id.UID, id.GID)
	}
	if len(id.Groups) > 1024 {
		return fault.New(fault.Invalid, "%d groups: at most 1024", len(id.Groups))
	}
	for _, g := range append([]uint32{id.GID}, id.Groups...) {
		if g >= TagFirst && g < TagFirst+TagCount || g == math.MaxUint32 {
			return fault.New(fault.Invalid, "group %d is reserved: use one below %d", g, TagFirst)
		}
	}
	return nil
}

// CheckPath refuses what is not an absolute path.
func CheckPath(what string, p Text) error {
	if len(p) == 0 || p[0] != '/' || len(p) > 4095 || strings.IndexByte(string(p), 0) >= 0 {
		return fault.New(fault.Invalid, "%s %.80q must be an absolute path without NUL, at most 4095 bytes", what, string(p))
	}
	return nil
}

func checkStrings(what string, in []Text) error {
	total := 0
	for _, s := range in {
		if len(s) > MaxString {
			return fault.New(fault.Invalid, "%s holds a string of %d bytes: at most %d; put it into a file or stdin", what, len(s), MaxString)
		}
		if strings.IndexByte(string(s), 0) >= 0 {
			return fault.New(fault.Invalid, "%s %.40q holds a NUL byte", what, string(s))
		}
		total += len(s) + 1
	}
	if total > MaxStrings {
		return fault.New(fault.Invalid, "%s has %d bytes: at most %d; put it into a file or stdin", what, total, MaxStrings)
	}
	return nil
}

// rlimits by name: the numbers of Linux on amd64 and arm64.
var rlimits = map[string]int{
	"cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7,
	"memlock": 8, "as": 9, "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13, "rtprio": 14, "rttime": 15,
}

// RlimitNumber gives the kernel's number of a limit.
func RlimitNumber(name string) (int, bool) {
	n, ok := rlimits[name]
	return n, ok
}
