// Package lifecycle is the state machine of a task: pure functions that take the record as it is and
// make it what it becomes. Each returns the name of the event to write, "" where nothing changes (a
// repeat of what was done before), or a fault where the change is not allowed from here.
//
//	pending ──admit──▶ queued(N) ──claim──▶ running(N) ──finish──▶ complete, error, cancelled
//	   ▲                  │                    │
//	   └── retry (N ends) ┴──────── lost ──────┘
//
// The attempt's number only grows and is the fencing token: claim, progress, finish and loss are taken
// from the current attempt only, and claim, progress and finish only from the node that holds it.
// Nothing follows a final state.
package lifecycle
