package provision

import "time"

// Estimate is how long making the stages takes together, if each takes what it is expected to.
func Estimate(stages []Stage, slots int) time.Duration {
	ends := make(map[string]time.Duration, len(stages))
	free := make([]time.Duration, max(1, slots)) // when each build slot is free again
	planned := make(map[string]bool, len(stages))
	for _, s := range stages {
		planned[s.Name] = true
	}
	var total time.Duration
	for len(ends) < len(stages) {
		progress := false
		for _, s := range stages {
			if _, done := ends[s.Name]; done {
				continue
			}
			start, ready := time.Duration(0), true
			for _, need := range s.Needs {
				end, done := ends[need]
				ready = ready && (done || !planned[need])
				start = max(start, end)
			}
			if !ready {
				continue
			}
			if s.Heavy {
				slot := 0
				for i := range free {
					if free[i] < free[slot] {
						slot = i
					}
				}
				start = max(start, free[slot])
				free[slot] = start + s.Expect
			}
			ends[s.Name] = start + s.Expect
			total = max(total, ends[s.Name])
			progress = true
		}
		if !progress {
			break // a circle: Run would wait for ever, and a test forbids it
		}
	}
	return total
}
