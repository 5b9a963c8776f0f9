package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Stage is one thing to have.
type Stage struct {
	Name    string        // a short word: openbao
	What    string        // for people: OpenBao 2.4.0, the secrets server
	Version string        // of what is made
	Expect  time.Duration // what making it takes on two cores with nothing cached
	Needs   []string      // stages that must be there before this one is made
	Heavy   bool          // takes one of the build slots

	// Files are what Make leaves, relative to the store: bin/bao. Without any, the stage leaves
	// nothing in the store and Installed alone says whether it is there.
	Files []string
	// Recipe is all that decides what Make makes, apart from Version. A change makes it anew.
	Recipe any

	// Installed says where the machine has it without us; nil if that can't be.
	Installed func(ctx context.Context) (where string, ok bool)
	// Works says whether what the store has still runs on this machine; nil means yes.
	Works func(path string) error
	// Make makes Files under job.Dir.
	Make func(ctx context.Context, job *Job) error

	// Lost is what can't be done without it; Remedy is another way to get it. Both are parts of
	// a sentence for the person who sees it fail.
	Lost, Remedy string
}

// key changes whenever the stage would make something else.
func (s Stage) key() string {
	text, err := json.Marshal([]any{s.Name, s.Version, s.Files, s.Recipe})
	if err != nil {
		panic(err) // a recipe is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Outcome is how a stage ended.
type Outcome string

const (
	Cached    Outcome = "cached"    // made by an earlier run, or by another one just now
	Installed Outcome = "installed" // the machine has it without us
	Made      Outcome = "made"      // by this run
	Failed    Outcome = "failed"
	Skipped   Outcome = "skipped" // not tried, because something it needs failed
)

// OK reports whether the thing is there.
func (o Outcome) OK() bool { return o == Cached || o == Installed || o == Made }

// Result is what became of a stage.
type Result struct {
	Stage   Stage
	Outcome Outcome
	Where   string        // a path, or what the machine has
	Size    int64         // bytes, of what is in the store
	Took    time.Duration // of making it
	Log     string        // path of the build's output, empty if nothing was made
	Err     error
}
