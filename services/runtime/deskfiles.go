package runtime

import (
	"context"
	"io"
	"path"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// fileOperations are those on files, seen from inside with the payload's permissions.
func (d *desk) fileOperations(c *mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		stream.Op(c, runtime.OpRead, d.Read),
		stream.Op(c, runtime.OpWrite, d.Write),
	}
}

// Read sends a file's bytes over the channel data. Paths are seen from inside, with the payload's permissions.
func (d *desk) Read(ctx context.Context, _ mesh.Caller, req runtime.FileRequest, s *stream.Session) (runtime.FileInfo, error) {
	defer d.use()()
	if err := absolute(req.Path); err != nil {
		return runtime.FileInfo{}, err
	}
	r, info, err := d.box.Supervisor().Files(sandbox.Payload()).Read(ctx, req.Path, 0, -1)
	if err != nil {
		return runtime.FileInfo{}, err
	}
	defer r.Close()
	if _, err := io.Copy(s.Channel(stream.Data), r); err != nil {
		return runtime.FileInfo{}, err
	}
	return fileInfo(info), nil
}

// Write replaces a file by the bytes that come over the channel data, whole or not at all.
func (d *desk) Write(ctx context.Context, _ mesh.Caller, req runtime.FileRequest, s *stream.Session) (runtime.FileInfo, error) {
	defer d.use()()
	if err := absolute(req.Path); err != nil {
		return runtime.FileInfo{}, err
	}
	mode := req.Mode & 0o7777
	if mode == 0 {
		mode = 0o644
	}
	info, err := d.box.Supervisor().Files(sandbox.Payload()).Write(ctx, req.Path, mode, s.Channel(stream.Data))
	return fileInfo(info), err
}

func absolute(p string) error {
	if !path.IsAbs(p) {
		return fault.New(fault.Invalid, "path %.200q must be absolute", p)
	}
	return nil
}

func fileInfo(i supervisor.FileInfo) runtime.FileInfo {
	return runtime.FileInfo{Size: i.Size, Mode: i.Mode, ModTime: i.ModTime}
}
