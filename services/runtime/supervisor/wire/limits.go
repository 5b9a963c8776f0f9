package wire

// OpLimits tells process 1 of a sandbox in which nothing has run yet what it may use: Limits. That it
// answers also shows that it is there.
const OpLimits Op = "limits"

// OpShow has process 1 of a sandbox that was launched with a late workspace show it where payload expects it. Done again
// it changes nothing. Nothing is started in such a sandbox before.
const OpShow Op = "show"

// Limits of a sandbox, as process 1 must know them: those of the control group around it.
type Limits struct {
	PIDs   int64 `json:"pids"`         // processes and threads, ReservedPIDs of them its own
	Memory int64 `json:"memory_bytes"` // of which a part is for kept output
}

// RingBytes is what kept output may take up in a sandbox of so much memory.
func (l Limits) RingBytes() int64 { return min(l.Memory/8, 64<<20) }
