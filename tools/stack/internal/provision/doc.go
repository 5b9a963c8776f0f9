// Package provision makes what a machine is missing: several stages at once, each exactly once.
//
// A Stage names an artifact, how to see that the machine has it already, and how to make it. Run
// makes all that are missing, in the order of what they need of each other, with a bound on how
// many heavy ones build at a time. A Store keeps what was made, with a stamp per artifact that says
// which version and recipe it came from, and a lock per artifact, so that two runs at the same time
// make nothing twice. An artifact moves into its place by rename, and its stamp is written last:
// killed anywhere, the next run sees either the whole artifact or none.
package provision
