// Package demo is the show that `weft demo` gives: it starts a mesh of its own on a fresh data directory,
// has agents audit a code base twice, kills the daemon in the middle, lets an agent misbehave, and checks
// everything that it claims. It works only through the SDK, as any operator could; the two places where it
// looks further are said where they are: Vault itself is asked about leases, and the span files are read.
//
// The agents are the Python programs in agents/, which are meant to be read and copied. What they print is
// their interface to the show: numbered lines with a time, by which a gap would show, and a line of JSON for
// every attack.
//
//	planner   reads the tree, submits an analyst for each top folder
//	analyst   audits a folder in a private overlay; facts to memory, findings to a file, a message to the reviewer
//	reviewer  is started by the trigger when all of the group have reported; merges, recounts, signs
//
// Run returns a Result with every check, so that a test can look at them one by one. A check that fails
// does not end the show where it can go on; what can't be done at all is an error.
package demo
