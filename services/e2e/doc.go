// Package e2e boots whole meshes from the real binaries and the real components, and holds the promises
// that only a whole mesh can keep: a task's way from end to end, what is left after a kill at any point, what
// hostile code inside gets to see.
package e2e
