package demo

import (
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Check is one claim of the show, and whether it held.
type Check struct {
	Claim  string `json:"claim"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // the figures, or what was wrong
}

// Lease is what became of a lease.
type Lease struct {
	Sandbox, Agent string
	Secrets        []string
	State          string // as its record says
	Alive          bool   // as Vault says
}

// Pass is one audit.
type Pass struct {
	Number            int
	Planner, Reviewer string   // task ids
	Analysts          []string // task ids
	Report            Report
	Took              time.Duration
}

// Result is everything that was seen and checked.
type Result struct {
	Took      time.Duration
	Files     int           // of the code base
	Lines     int           // of them, as the show itself counts
	Away      time.Duration // from the daemon's SIGKILL until the mesh was ready again
	WhileAway int           // lines of output that agents wrote in that time
	Checks    []Check
	Attacks   []Attack
	Edits     []Edit
	Passes    []Pass
	Leases    []Lease
	Tasks     []workspace.Task // of both passes, in the order in which they were submitted
	Spans     int              // of the trace that was shown
	Output    string           // directory of the reports and artifacts
	Artifacts []string         // paths of the zips
	Logs      string           // where the logs were kept, if something failed
	DataDir   string           // where the mesh's data was left, with Keep
	Removed   bool             // whether the mesh and everything of it is gone from the machine
}

// OK reports whether all of it held.
func (r *Result) OK() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return false
		}
	}
	return len(r.Checks) > 0
}

// Failed gives the checks that did not hold.
func (r *Result) Failed() []Check {
	var out []Check
	for _, c := range r.Checks {
		if !c.OK {
			out = append(out, c)
		}
	}
	return out
}
