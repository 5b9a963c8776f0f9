package filesystem

import (
	"fmt"
	"strconv"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Kinds of a change.
const (
	kindAdded    = "added"
	kindRemoved  = "removed"
	kindModified = "modified"
)

// difference is what one tree has and another has not, in the order of paths.
type difference []manifest.Change

func differences(t *manifest.Tree, a, b chunks.Hash) (difference, error) {
	var d difference
	err := t.Diff(a, b, func(c manifest.Change) error {
		d = append(d, c)
		return nil
	})
	return d, err
}

// leaves counts the files and symlinks among them.
func (d difference) leaves() int {
	n := 0
	for _, c := range d {
		if c.From != nil && c.From.Type != manifest.Dir || c.To != nil && c.To.Type != manifest.Dir {
			n++
		}
	}
	return n
}

func kindOf(c manifest.Change) string {
	switch {
	case c.From == nil:
		return kindAdded
	case c.To == nil:
		return kindRemoved
	}
	return kindModified
}

// skippedLines says for people what could not be stored.
func skippedLines(skipped []tree.Skipped) []string {
	var out []string
	for _, s := range skipped {
		out = append(out, fmt.Sprintf("%s: %s", s.Path, s.Reason))
	}
	return clipPaths(out)
}

func itoa(n int) string { return strconv.Itoa(n) }
