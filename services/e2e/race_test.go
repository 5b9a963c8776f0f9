//go:build race

package e2e

// raceDetector has the daemons under test built with the race detector, too.
const raceDetector = true
