// Package schemas holds what every party of the mesh must agree on: identifiers, subjects, the
// envelope, the error codes, and in its subfolders the wire structs of each service.
//
// It imports the standard library only, so that any program can depend on it. Nobody writes a
// subject by hand: the functions here validate every part and are the only way to make or read one.
package schemas
