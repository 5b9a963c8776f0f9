package weftd

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/filesystem"
)

// filesystemPart runs the filesystem service.
func (d *daemon) filesystemPart() lifecycle.Part {
	var (
		conn *mesh.Conn
		svc  *filesystem.Service
		stop func()
	)
	return lifecycle.Part{Name: schemas.Filesystem,
		Start: func(ctx context.Context) error {
			var err error
			if conn, err = d.connect(ctx, schemas.Filesystem); err != nil {
				return err
			}
			cfg := filesystem.Config{DataDir: d.cfg.dir("files"), Logger: d.log, SpoolDirs: []string{d.cfg.dir(schemas.Runtime)}}
			if svc, err = filesystem.New(cfg.OnMesh(conn)); err != nil {
				return err
			}
			stop, err = svc.Serve(conn)
			return err
		},
		Run: func(ctx context.Context) error { return svc.Run(ctx) },
		Stop: func() {
			stop()
			if err := svc.Close(); err != nil {
				d.log.Warn("files not closed", "err", err)
			}
			conn.Close()
		},
	}
}
