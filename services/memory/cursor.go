package memory

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// pageBytes is how large the items of a reply may be together as JSON. A page ends early rather than be
// larger; one item always fits.
const pageBytes = 1 << 20

// A cursor is opaque to clients: text of ours in base64. It comes back from them, so it is checked like
// anything else, and a forged one can only name another place in the same list.

func encodeCursor(a int64, b string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(a, 36) + "." + b))
}

func decodeCursor(cursor string) (a int64, b string, err error) {
	bad := invalid("cursor is not one that this operation gave: leave it out to begin anew")
	if len(cursor) > 100 {
		return 0, "", bad
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", bad
	}
	first, b, ok := strings.Cut(string(raw), ".")
	if a, err = strconv.ParseInt(first, 36, 64); err != nil || !ok {
		return 0, "", bad
	}
	return a, b, nil
}

// listCursor is the place after it.
func listCursor(it memory.Item) string { return encodeCursor(it.CreatedAt.UnixMicro(), it.ID) }

func parseListCursor(cursor string) (store.Position, error) {
	if cursor == "" {
		return store.Position{}, nil
	}
	us, id, err := decodeCursor(cursor)
	if err == nil && schemas.CheckID("id", id) != nil {
		err = invalid("cursor is not one of a list: leave it out to begin anew")
	}
	return store.Position{Created: time.UnixMicro(us).UTC(), ID: id}, err
}

// searchCursor is the place after the first offset hits of a search that began at a time: the
// following pages look at the items as they were then, so that none is shown twice.
func searchCursor(at time.Time, offset int) string {
	return encodeCursor(at.UnixMicro(), strconv.Itoa(offset))
}

func parseSearchCursor(cursor string) (at time.Time, offset int, err error) {
	us, rest, err := decodeCursor(cursor)
	if err == nil {
		offset, err = strconv.Atoi(rest)
	}
	if err != nil || offset < 1 || offset > memory.MaxSearchDepth {
		return at, 0, invalid("cursor is not one of a search: leave it out to begin anew")
	}
	return time.UnixMicro(us).UTC(), offset, nil
}

// page takes items until limit or pageBytes is reached. more says that some are left.
func page(items []memory.Item, limit int) (taken []memory.Item, more bool, err error) {
	taken = []memory.Item{} // an empty list is [] in JSON
	size := 0
	for _, it := range items {
		n, err := jsonSize(it)
		if err != nil {
			return nil, false, err
		}
		if size += n; len(taken) == limit || len(taken) > 0 && size > pageBytes {
			return taken, true, nil
		}
		taken = append(taken, it)
	}
	return taken, false, nil
}

func jsonSize(it memory.Item) (int, error) {
	b, err := json.Marshal(it)
	if err != nil {
		return 0, fmt.Errorf("item %s: %w", it.ID, err)
	}
	return len(b), nil
}
