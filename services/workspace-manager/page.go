package manager

import (
	"encoding/json"
	"sort"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Pages are bounded by number, and by size: an answer must fit into one message.
const (
	defaultLimit = 100
	maxLimit     = 1000
	maxPageBytes = 3 << 20
)

func limit(n int) (int, error) {
	switch {
	case n == 0:
		return defaultLimit, nil
	case n < 0 || n > maxLimit:
		return 0, fault.New(fault.Invalid, `field "limit" must be 1 to %d, not %d`, maxLimit, n)
	}
	return n, nil
}

// pageOf gives the page after req.Cursor of items, which are sorted by name first.
func pageOf[T any](items []T, req workspace.List, name func(T) string) (workspace.Page[T], error) {
	n, err := limit(req.Limit)
	if err != nil {
		return workspace.Page[T]{}, err
	}
	sort.Slice(items, func(i, j int) bool { return name(items[i]) < name(items[j]) })
	from := 0
	if req.Cursor != "" {
		from = sort.Search(len(items), func(i int) bool { return name(items[i]) > req.Cursor })
	}
	p := workspace.Page[T]{Items: []T{}}
	size := 0
	for i := from; i < len(items); i++ {
		b, err := json.Marshal(items[i])
		if err != nil {
			return p, err
		}
		if size += len(b); len(p.Items) == n || (size > maxPageBytes && len(p.Items) > 0) {
			p.Cursor = name(p.Items[len(p.Items)-1])
			break
		}
		p.Items = append(p.Items, items[i])
	}
	return p, nil
}
