// Package cli is the operator's command line, weft. It is also mounted in every sandbox, where it acts as
// the sandbox's agent without credentials.
//
// # What goes where
//
// Data goes to stdout, everything for people to stderr. Colour and progress appear only on a terminal, and
// never where NO_COLOR is set. A failure is one sentence that says what to do.
//
// # JSON
//
// With --json stdout and stderr have this versioned shape and nothing else; T is the wire struct of the
// contract (schemas/json has its JSON Schema). Fields are only added within a version.
//
//	{"schema":"weft.cli.v1","item":T}             commands about one thing
//	{"schema":"weft.cli.v1","items":[T, …]}       lists
//	{"schema":"weft.cli.v1","type":"…","item":T}  one line each, of commands that follow: run, events, task logs -f, msg read -f
//	{"schema":"weft.cli.v1","error":{"code":"…","message":"…","exit":n}}   the last line of stderr on failure
//
// Bytes (output, files) are as they are without --json, and base64 in it.
//
// # Exit codes
//
// See the constants. run, task wait, sandbox exec and shell pass the command's own code.
package cli
