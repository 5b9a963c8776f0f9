package sqlite

import (
	"strings"

	"github.com/weftmesh/weft/services/memory/internal/store"
)

// conditions collects what must hold of items AS i, with the values of its placeholders.
type conditions struct {
	terms []string
	args  []any
}

func (c *conditions) and(term string, args ...any) {
	c.terms = append(c.terms, term)
	c.args = append(c.args, args...)
}

func (c *conditions) clause() string {
	if len(c.terms) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.terms, " AND ")
}

// where says in SQL what f picks. Values are always placeholders.
func where(f store.Filter) *conditions {
	c := &conditions{}
	if f.ID != "" {
		c.and(`i.id = ?`, f.ID)
	}
	if len(f.Kinds) > 0 {
		args := make([]any, len(f.Kinds))
		for n, k := range f.Kinds {
			args[n] = string(k)
		}
		c.and(`i.kind IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
	}
	for _, tag := range f.Tags {
		c.and(`i.seq IN (SELECT seq FROM tags WHERE tag = ?)`, tag)
	}
	if f.Key != "" {
		c.and(`i.key = ? AND i.key <> ''`, f.Key)
	}
	if f.KeyPrefix != "" {
		// UTF-8 sorts as bytes, and has no byte 0xff: the prefix's range, with use of the index.
		c.and(`i.key >= ? AND i.key < ? AND i.key <> ''`, f.KeyPrefix, f.KeyPrefix+"\xff")
	}
	if f.Principal != "" {
		c.and(`i.principal = ?`, f.Principal)
	}
	if f.Task != "" {
		c.and(`i.task = ?`, f.Task)
	}
	if f.Pinned != nil && *f.Pinned {
		c.and(`i.pinned = 1`)
	} else if f.Pinned != nil {
		c.and(`i.pinned = 0`)
	}
	if !f.CreatedFrom.IsZero() {
		c.and(`i.created >= ?`, f.CreatedFrom.UnixMicro())
	}
	if !f.CreatedBefore.IsZero() {
		c.and(`i.created < ?`, f.CreatedBefore.UnixMicro())
	}
	switch {
	case f.AllVersions:
	case f.AsOf.IsZero():
		c.and(`i.valid_to = 9223372036854775807`)
	default:
		c.and(`i.valid_from <= ? AND i.valid_to > ?`, f.AsOf.UnixMicro(), f.AsOf.UnixMicro())
	}
	return c
}
