// Package client is the Go SDK: what the CLI and other programs use to work with a mesh. A Client acts as
// one principal in one workspace; every method is one operation or message of the contract in schemas,
// with its types. Errors are *fault.Error: their code decides, their sentence says what to do. A publish
// that the server does not allow is reported as denied, at once.
//
// Operations take their deadline from ctx, 10 seconds if it has none. Those that follow (Wait, Follow,
// Events, Output, streams) run until ctx ends, and go on by themselves after a disconnect, without a gap.
package client
