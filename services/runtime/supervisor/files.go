package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Files are a sandbox's files, seen from inside with one identity's permissions. Paths are
// absolute, in the sandbox's view; links are followed there and lead nowhere else.
type Files struct {
	box *Sandbox
	as  Identity
}

// Files gives the sandbox's files as identity as may see and change them.
func (s *Sandbox) Files(as Identity) *Files { return &Files{s, as} }

func (f *Files) request(op wire.Op, path string) wire.Request {
	return wire.Request{Op: op, As: &f.as, Path: Text(path)}
}

func fileOf(r wire.Reply, err error) (FileInfo, error) {
	if err != nil {
		return FileInfo{}, err
	}
	if r.File == nil {
		return FileInfo{}, fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
	}
	return *r.File, nil
}

// Stat describes a file.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return fileOf(f.box.askAgain(ctx, f.request(wire.OpStat, path)))
}

// Lstat describes a file, and a symbolic link itself.
func (f *Files) Lstat(ctx context.Context, path string) (FileInfo, error) {
	req := f.request(wire.OpStat, path)
	req.Files = &wire.FileQuery{NoFollow: true}
	return fileOf(f.box.askAgain(ctx, req))
}

// Read streams length bytes of a regular file from offset on; length < 0 means to its end. ctx
// covers the whole reading; the caller closes the reader. Anything but a regular file is invalid.
func (f *Files) Read(ctx context.Context, path string, offset, length int64) (io.ReadCloser, FileInfo, error) {
	req := f.request(wire.OpRead, path)
	req.Offset, req.Length = offset, length
	st, reply, err := f.box.open(ctx, req)
	if err != nil {
		return nil, FileInfo{}, err
	}
	info, err := fileOf(reply, nil)
	if err != nil {
		_ = st.Close()
		return nil, FileInfo{}, err
	}
	return &fileReader{ctx: ctx, st: st, stop: st.until(ctx)}, info, nil
}

// fileReader reads the data frames of one file. Its ctx is of the one call that it belongs to.
type fileReader struct {
	ctx  context.Context
	st   *stream
	stop func()
	rest []byte
	err  error
}

func (r *fileReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		f, err := r.st.frames.Message()
		switch {
		case err != nil:
			r.err = r.st.failed(r.ctx, err)
		case f.Type == wire.TypeData:
			r.rest = f.Body
		case f.Type == wire.TypeEOF:
			r.err = io.EOF
		case f.Type == wire.TypeError:
			r.err = decodeError(f)
		default:
			r.err = fault.Wrap(wire.ErrUnexpected, fault.Internal, "the sandbox's answer is not to be understood")
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *fileReader) Close() error {
	r.stop()
	return r.st.Close()
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	Mode    uint32 // permission bits; 0 keeps those of the file that is there, 0644 for a new one
	Parents bool   // make missing directories above
	Keep    bool   // a file that is there is a conflict
}

// Write replaces a file atomically by what r gives: readers see the old or the new content. mode is
// its permission bits. If r fails, or the connection, the old file stays. A link at path is replaced,
// not followed.
func (f *Files) Write(ctx context.Context, path string, mode uint32, r io.Reader) (FileInfo, error) {
	return f.WriteWith(ctx, path, WriteOptions{Mode: mode}, r)
}

// WriteWith is Write with options.
func (f *Files) WriteWith(ctx context.Context, path string, o WriteOptions, r io.Reader) (FileInfo, error) {
	req := f.request(wire.OpWrite, path)
	req.Mode, req.Files = o.Mode, &wire.FileQuery{Parents: o.Parents, Keep: o.Keep}
	return fileOf(f.send(ctx, req, r))
}

// Append adds what r gives to the end of a file, and makes it if it is missing. What was added before r or
// the connection failed stays.
func (f *Files) Append(ctx context.Context, path string, o WriteOptions, r io.Reader) (FileInfo, error) {
	req := f.request(wire.OpAppend, path)
	req.Mode, req.Files = o.Mode, &wire.FileQuery{Parents: o.Parents}
	return fileOf(f.send(ctx, req, r))
}

// send is for operations that take data.
func (f *Files) send(ctx context.Context, req wire.Request, r io.Reader) (wire.Reply, error) {
	session, err := f.box.connected(ctx)
	if err != nil {
		return wire.Reply{}, err
	}
	y, err := openStream(session)
	if err != nil {
		return wire.Reply{}, err
	}
	st := &stream{y, wire.NewReader(y)}
	defer st.Close()
	defer st.until(ctx)()
	if err := wire.WriteMessage(st, wire.TypeRequest, req); err != nil {
		return wire.Reply{}, st.failed(ctx, err)
	}
	// The answer is awaited beside the writing: a refusal comes before all was sent, and nobody takes the rest.
	answer := make(chan struct{})
	var reply wire.Reply
	var rerr error
	go func() {
		defer close(answer)
		reply, rerr = st.reply(ctx)
		_ = st.SetWriteDeadline(time.Unix(1, 0))
	}()
	err = st.copyFrom(r)
	var source sourceError
	if errors.As(err, &source) {
		_ = st.Close()
		_ = st.SetReadDeadline(time.Unix(1, 0))
		<-answer
		return wire.Reply{}, fmt.Errorf("what was to be written to %s: %w", string(req.Path), source.error)
	}
	<-answer
	return reply, rerr
}

// sourceError is an error of what is read from, not of the channel.
type sourceError struct{ error }

func (s *stream) copyFrom(r io.Reader) error {
	b := make([]byte, wire.MaxFrame)
	for {
		n, err := r.Read(b[wire.HeaderSize:])
		if n > 0 {
			wire.PutHeader(b, wire.TypeData, n)
			if _, err := s.Stream.Write(b[:wire.HeaderSize+n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return wire.WriteFrame(s.Stream, wire.TypeEOF, nil)
		}
		if err != nil {
			return sourceError{err}
		}
	}
}

// Mkdir makes a directory. With parents, those above it that are missing too, and one that is
// there already is no error.
func (f *Files) Mkdir(ctx context.Context, path string, mode uint32, parents bool) error {
	req := f.request(wire.OpMkdir, path)
	req.Mode, req.Deep = mode, parents
	_, err := f.box.ask(ctx, req)
	return err
}

// Remove deletes a file or an empty directory, recursive also a full one. Missing is not_found.
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error {
	req := f.request(wire.OpRemove, path)
	req.Deep = recursive
	_, err := f.box.ask(ctx, req)
	return err
}
