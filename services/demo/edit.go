package demo

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
)

// Edit is a change to one file between the two passes.
type Edit struct {
	Path          string
	What          string
	Before, After int // lines
}

// edited is how many files change, and editable how many lines one must have.
const (
	edited   = 3
	editable = 5
)

// edits are the changes that are made, to one file each: one adds lines, one removes some, one changes
// a line and so nothing in the count.
var edits = [edited]struct {
	what string
	do   func(lines [][]byte) [][]byte
}{
	{"3 lines added", func(ls [][]byte) [][]byte {
		last := len(ls) - 1
		if len(ls[last]) == 0 {
			ls = ls[:last] // nothing follows the last newline
		} else {
			ls[last] = append(slices.Clone(ls[last]), '\n')
		}
		for i := range 3 {
			ls = append(ls, fmt.Appendf(nil, "line %d that the demo added\n", i+1))
		}
		return ls
	}},
	{"2 lines removed", func(ls [][]byte) [][]byte { return slices.Delete(ls, 1, 3) }},
	{"1 line changed", func(ls [][]byte) [][]byte {
		ls[len(ls)/2] = []byte("the line that the demo changed\n")
		return ls
	}},
}

// change edits three files of the copy at dir. Which ones depends on the files alone.
func change(dir string, files []string) ([]Edit, error) {
	chosen, err := choose(dir, files)
	if err != nil {
		return nil, err
	}
	var out []Edit
	for i, f := range chosen {
		at := filepath.Join(dir, filepath.FromSlash(f))
		b, err := os.ReadFile(at)
		if err != nil {
			return nil, err
		}
		after := bytes.Join(edits[i].do(bytes.SplitAfter(bytes.Clone(b), []byte("\n"))), nil)
		if err := os.WriteFile(at, after, 0o644); err != nil {
			return nil, err
		}
		out = append(out, Edit{Path: f, What: edits[i].what, Before: countLines(b), After: countLines(after)})
	}
	slices.SortFunc(out, func(a, b Edit) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	return out, nil
}

// choose picks text files of different top folders as far as there are any, beginning with the folders
// that have the most, and in each the one in the middle.
func choose(dir string, files []string) ([]string, error) {
	byTop := map[string][]string{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f)))
		if err != nil {
			return nil, err
		}
		if countLines(b) >= editable {
			byTop[topOf(f)] = append(byTop[topOf(f)], f)
		}
	}
	order := slices.Sorted(maps.Keys(byTop))
	slices.SortStableFunc(order, func(a, b string) int { return len(byTop[b]) - len(byTop[a]) })
	var out []string
	for round := 0; len(out) < edited; round++ {
		some := false
		for _, top := range order {
			if fs := byTop[top]; round < len(fs) && len(out) < edited {
				out, some = append(out, fs[(len(fs)/2+round)%len(fs)]), true
			}
		}
		if !some {
			return nil, fault.New(fault.Invalid, "the second pass edits %d text files of %d lines or more, and the code base has only %d of them", edited, editable, len(out))
		}
	}
	return out, nil
}
