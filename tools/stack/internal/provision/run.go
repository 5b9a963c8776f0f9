package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// State is what a stage is doing now.
type State int

const (
	Waiting State = iota // for another stage, a build slot, or another run of this program
	Running
	Done
)

// Status is a stage at one moment.
type Status struct {
	Stage   Stage
	State   State
	Why     string        // what a waiting stage waits for
	Started time.Time     // of Running
	Last    func() string // the last line of the build's output
	Result  Result        // of Done
}

// Watcher is told of every change, one call at a time.
type Watcher interface{ Changed(Status) }

// ErrUnmade is returned by Run when at least one stage isn't there at its end.
var ErrUnmade = errors.New("not everything could be made")

// Run makes those of the stages that are not there, at most slots heavy ones at a time and the long
// ones first, and returns what became of each, in the order given. A failure stops only what needs
// the failed stage. When ctx ends, what is being made is stopped and thrown away, and what is
// finished stays.
func Run(ctx context.Context, store Store, stages []Stage, slots int, watch Watcher) ([]Result, error) {
	r := &run{store: store, slots: max(1, slots), watch: watch, planned: map[string]bool{}, results: map[string]Result{}, done: make(chan Result)}
	for _, stage := range stages {
		r.planned[stage.Name] = true
	}
	for _, result := range LookAll(ctx, store, stages) {
		if result.Outcome.OK() {
			r.finish(result)
		} else {
			r.pending = append(r.pending, result.Stage)
		}
	}
	slices.SortStableFunc(r.pending, func(a, b Stage) int { return cmp.Compare(b.Expect, a.Expect) })
	for r.dispatch(ctx); r.working > 0; r.dispatch(ctx) {
		result := <-r.done
		r.working--
		if result.Stage.Heavy {
			r.heavy--
		}
		r.finish(result)
	}

	results, err := make([]Result, len(stages)), error(nil)
	for i, stage := range stages {
		results[i] = r.results[stage.Name]
		if !results[i].Outcome.OK() {
			err = ErrUnmade
		}
	}
	return results, err
}

// run belongs to Run's goroutine, but for store, done and tell, which the makers use too.
type run struct {
	store   Store
	slots   int
	planned map[string]bool
	pending []Stage // not started, the longest first
	working int     // started
	heavy   int     // started, and taking a slot
	results map[string]Result
	done    chan Result

	mu    sync.Mutex
	watch Watcher
}

func (r *run) tell(s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch != nil {
		r.watch.Changed(s)
	}
}

func (r *run) finish(result Result) {
	r.results[result.Stage.Name] = result
	r.tell(Status{Stage: result.Stage, State: Done, Result: result})
}

// dispatch starts all that can start now, and gives up on what can't start any more.
func (r *run) dispatch(ctx context.Context) {
	for again := true; again; {
		again = false
		var left []Stage
		for _, stage := range r.pending {
			waits, lost := r.waitsFor(stage)
			switch {
			case ctx.Err() != nil:
				r.finish(failed(stage, ctx.Err()))
			case lost:
				r.finish(Result{Stage: stage, Outcome: Skipped, Err: fmt.Errorf("it needs %s", waits)})
				again = true // another may need this one
			case waits != "":
				r.tell(Status{Stage: stage, State: Waiting, Why: "for " + waits})
				left = append(left, stage)
			default:
				r.start(ctx, stage)
			}
		}
		r.pending = left
	}
	if r.working == 0 {
		for _, stage := range r.pending {
			r.finish(failed(stage, errors.New("stages need each other in a circle")))
		}
		r.pending = nil
	}
}

// waitsFor returns what a stage waits for, empty if for nothing, and whether it waits in vain.
func (r *run) waitsFor(stage Stage) (what string, lost bool) {
	for _, need := range stage.Needs {
		result, ended := r.results[need]
		if ended && !result.Outcome.OK() {
			return need, true
		}
		if !ended && r.planned[need] {
			what = need
		}
	}
	if what == "" && stage.Heavy && r.heavy >= r.slots {
		what = "a free core"
	}
	return what, false
}

// start has a stage made in a goroutine that Run waits for.
func (r *run) start(ctx context.Context, stage Stage) {
	r.working++
	if stage.Heavy {
		r.heavy++
	}
	go func() { r.done <- r.locked(ctx, stage) }()
}

// locked makes a stage's thing under its lock.
func (r *run) locked(ctx context.Context, stage Stage) Result {
	unlock, err := r.store.Lock(ctx, stage.Name, func() {
		r.tell(Status{Stage: stage, State: Waiting, Why: "for another run that is making it"})
	})
	if err != nil {
		return failed(stage, err)
	}
	defer unlock()
	// Another run may have made it while we waited.
	if result := Look(ctx, r.store, stage); result.Outcome.OK() {
		return result
	}
	return r.make(ctx, stage)
}

// make makes it. The caller holds the stage's lock.
func (r *run) make(ctx context.Context, stage Stage) Result {
	started := time.Now()
	job, err := r.store.begin(stage)
	if err != nil {
		return failed(stage, err)
	}
	defer job.end()
	r.tell(Status{Stage: stage, State: Running, Started: started, Last: job.log.lastLine})

	err = stage.Make(ctx, job)
	took := time.Since(started)
	var size int64
	if err == nil {
		size, err = r.store.commit(stage, job.Dir, took)
	}
	if err != nil {
		job.Logf("%s: %v", stage.Name, err)
		return Result{Stage: stage, Outcome: Failed, Took: took, Log: job.log.path, Err: err}
	}
	return Result{Stage: stage, Outcome: Made, Where: r.store.where(stage), Size: size, Took: took, Log: job.log.path}
}

func failed(stage Stage, err error) Result {
	return Result{Stage: stage, Outcome: Failed, Err: err}
}

// Look says whether a stage's thing is there; if not, the outcome is empty.
func Look(ctx context.Context, store Store, stage Stage) Result {
	if stage.Installed != nil {
		if where, ok := stage.Installed(ctx); ok {
			return Result{Stage: stage, Outcome: Installed, Where: where}
		}
	}
	if size, ok := store.Have(stage); ok {
		return Result{Stage: stage, Outcome: Cached, Where: store.where(stage), Size: size}
	}
	return Result{Stage: stage}
}

// LookAll looks at all stages at once: asking a program for its version takes a while.
func LookAll(ctx context.Context, store Store, stages []Stage) []Result {
	results := make([]Result, len(stages))
	var wg sync.WaitGroup
	for i, stage := range stages {
		wg.Go(func() { results[i] = Look(ctx, store, stage) })
	}
	wg.Wait()
	return results
}
