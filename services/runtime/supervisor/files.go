package supervisor

import (
	"context"
	"io"
)

// Files are a sandbox's files, seen from inside with one identity's permissions. Paths are
// absolute, in the sandbox's view; links are followed there and lead nowhere else.
type Files struct{}

// Stat describes a file.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error)

// Read streams length bytes of a regular file from offset on; length < 0 means to its end. ctx
// covers the whole reading; the caller closes the reader. Anything but a regular file is invalid.
func (f *Files) Read(ctx context.Context, path string, offset, length int64) (io.ReadCloser, FileInfo, error)

// Write replaces a file atomically by what r gives: readers see the old or the new content. mode is
// its permission bits. If r fails, or the connection, the old file stays.
func (f *Files) Write(ctx context.Context, path string, mode uint32, r io.Reader) (FileInfo, error)

// List gives a directory's entries in the order of their names, at most 100,000 (exhausted).
func (f *Files) List(ctx context.Context, path string) ([]FileInfo, error)

// Mkdir makes a directory, with parents also those above it that are missing.
func (f *Files) Mkdir(ctx context.Context, path string, mode uint32, parents bool) error

// Remove deletes a file or an empty directory, recursive also a full one. Missing is not_found.
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error

// Rename moves a file within one file system, replacing what is at to.
func (f *Files) Rename(ctx context.Context, from, to string) error
