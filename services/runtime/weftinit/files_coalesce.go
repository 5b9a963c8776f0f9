package weftinit

import "github.com/weftmesh/weft/services/runtime/supervisor/wire"

// maxPending bounds how many paths' changes are put together.
const maxPending = 4096

// pending puts together what happens to each path until it is told.
type pending struct {
	order []string
	of    map[string]*wire.Change
	bytes int
	lost  bool
}

func newPending() *pending { return &pending{of: map[string]*wire.Change{}} }

// add notes that something happened to a path.
func (p *pending) add(c wire.Change) {
	path := string(c.Path)
	had, ok := p.of[path]
	if !ok || had.Kind == "" {
		if len(p.of) >= maxPending || p.bytes > wire.MaxPageBytes {
			p.lost = true
			return
		}
		if !ok {
			p.order = append(p.order, path)
			p.bytes += len(path) + len(c.From)
		}
		p.of[path] = &c
		return
	}
	had.Dir = c.Dir
	switch k := had.Kind; {
	case c.Kind == wire.ChangeRemove && (k == wire.ChangeCreate):
		had.Kind = "" // it came and went
	case c.Kind == wire.ChangeRemove && k == wire.ChangeMove: // where it was before is what is gone
		from := had.From
		had.Kind = ""
		p.add(wire.Change{Kind: wire.ChangeRemove, Path: from, Dir: c.Dir})
	case c.Kind == wire.ChangeRemove, c.Kind == wire.ChangeMove:
		had.Kind, had.From = c.Kind, c.From
	case c.Kind == wire.ChangeCreate && k == wire.ChangeRemove:
		had.Kind = wire.ChangeModify
	case c.Kind == wire.ChangeModify && k == wire.ChangeAttrib:
		had.Kind = wire.ChangeModify
	}
}

// move notes that a path has another name now.
func (p *pending) move(from, to wire.Text, dir bool) {
	had, ok := p.of[string(from)]
	switch {
	case ok && had.Kind == wire.ChangeCreate: // nobody was told of the old name
		had.Kind = ""
		p.add(wire.Change{Kind: wire.ChangeCreate, Path: to, Dir: dir})
	case ok && had.Kind == wire.ChangeMove:
		was := had.From
		had.Kind, had.From = "", ""
		p.add(wire.Change{Kind: wire.ChangeMove, Path: to, From: was, Dir: dir})
	default:
		if ok {
			had.Kind = ""
		}
		p.add(wire.Change{Kind: wire.ChangeMove, Path: to, From: from, Dir: dir})
	}
}

// take gives what is to be told, in the order in which it began.
func (p *pending) take() []wire.Change {
	var out []wire.Change
	if p.lost {
		out = []wire.Change{{Kind: wire.ChangeOverflow}}
	} else {
		for _, path := range p.order {
			if c := p.of[path]; c.Kind != "" {
				out = append(out, *c)
			}
		}
	}
	*p = *newPending()
	return out
}
