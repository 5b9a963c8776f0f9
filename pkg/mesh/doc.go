// Package mesh is how a program takes part in the mesh: Connect, serve operations, Request, Publish
// and Consume. Its subpackages add accounts (identity), bus (the embedded server), records (the log is
// the record), stream (byte streams) and provision (streams and buckets).
//
// Operations are plain Go functions. This package decodes, sets the deadline, calls, replies and
// traces; no NATS type reaches an operation.
package mesh
