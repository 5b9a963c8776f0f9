package client

import "time"

// SetLookEvery changes how often a task's record is looked at without an event.
func SetLookEvery(d time.Duration) (restore func()) {
	before := lookEvery
	lookEvery = d
	return func() { lookEvery = before }
}
