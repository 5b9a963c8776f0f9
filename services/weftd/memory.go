package weftd

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/memory"
)

// memoryPart runs the memory service over SQLite or MongoDB.
func (d *daemon) memoryPart() lifecycle.Part {
	var (
		store memory.Store
		conn  *mesh.Conn
		stop  func()
	)
	return lifecycle.Part{Name: schemas.Memory,
		Start: func(ctx context.Context) error {
			address := d.cfg.Memory
			if address == "sqlite" {
				address = "sqlite:" + d.cfg.dir("memory")
			}
			var err error
			if store, err = memory.Open(ctx, address, 0); err != nil {
				return err
			}
			svc, err := memory.New(memory.Config{Store: store})
			if err != nil {
				return err
			}
			if conn, err = d.connect(ctx, schemas.Memory); err != nil {
				return err
			}
			stop, err = svc.Serve(conn)
			return err
		},
		Stop: func() {
			stop()
			conn.Close()
			if err := store.Close(); err != nil {
				d.log.Warn("memory store not closed", "err", err)
			}
		},
	}
}
