package memory

import (
	"context"
	"fmt"
	"strings"

	"github.com/weftmesh/weft/services/memory/internal/mongo"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
)

// Open opens the store that address names; the caller closes it.
//
//	sqlite:<directory>                    one database file for each workspace; one process owns the directory
//	mongodb://… or mongodb+srv://…        a MongoDB, its path names the database (weft if it has none)
//
// SQLite has at most openFiles databases open at once (64 if 0), each with up to 10 file descriptors; MongoDB
// takes no notice of it. An error does not repeat the address, which may hold a password.
func Open(ctx context.Context, address string, openFiles int) (Store, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	switch {
	case ok && scheme == "sqlite" && rest != "":
		return sqlite.Open(rest, sqlite.Options{MaxOpen: openFiles})
	case ok && (scheme == "mongodb" || scheme == "mongodb+srv"):
		return mongo.Open(ctx, address)
	}
	return nil, fmt.Errorf("memory store: the address must be sqlite:<directory> or a mongodb:// URL")
}
