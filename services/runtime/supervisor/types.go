package supervisor

import "github.com/weftmesh/weft/services/runtime/supervisor/wire"

// What is said over the wire is documented there.
type (
	ProcessSpec = wire.ProcessSpec
	ProcessInfo = wire.ProcessInfo
	Identity    = wire.Identity
	Rlimit      = wire.Rlimit
	Size        = wire.Size
	Exit        = wire.Exit
	Reason      = wire.Reason
	Offsets     = wire.Offsets
	Stream      = wire.Stream
	OutputMode  = wire.OutputMode
	Target      = wire.Target
	FileInfo    = wire.FileInfo
	FileType    = wire.FileType
	Usage       = wire.Usage
	Text        = wire.Text
)

// Constants of those types.
const (
	Stdout = wire.Stdout
	Stderr = wire.Stderr

	OutputAttached = wire.OutputAttached
	OutputRing     = wire.OutputRing
	OutputLossless = wire.OutputLossless

	ReasonExited   = wire.ReasonExited
	ReasonSignaled = wire.ReasonSignaled
	ReasonTimeout  = wire.ReasonTimeout
	ReasonKilled   = wire.ReasonKilled
	ReasonFailed   = wire.ReasonFailed

	TargetProcess = wire.TargetProcess
	TargetGroup   = wire.TargetGroup
	TargetTree    = wire.TargetTree

	FileRegular = wire.FileRegular
	FileDir     = wire.FileDir
	FileSymlink = wire.FileSymlink
	FileOther   = wire.FileOther
)

// Texts converts strings to what Argv and Env take.
func Texts(in ...string) []Text { return wire.Texts(in...) }
