package stream

// Names of channels by convention. An operation on one file or tree has one channel of bytes; a process
// has its three, of which a terminal uses two: its output is stdout.
const (
	Data   = "data"
	Stdin  = "stdin"
	Stdout = "stdout"
	Stderr = "stderr"
)

// Types of control messages by convention.
const (
	Resize  = "resize"  // runtime.ResizeRequest: the caller's terminal has another size
	Signal  = "signal"  // runtime.SignalRequest: send a signal to the process's group
	Started = "started" // runtime.Process or, of attach, runtime.Attached: the process is there

	Gap       = "gap"       // runtime.Gap: output is missing
	Taken     = "taken"     // runtime.Taken: how much of stdin the process has taken
	Connected = "connected" // of dial
)
