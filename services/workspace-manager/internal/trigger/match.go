// Package trigger decides which triggers a message or an event starts, and when a group is complete.
// It is pure; the manager keeps the gathers' records and starts the tasks.
package trigger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

// MatchMessage reports whether a message from one principal to another starts t.
func MatchMessage(t *workspace.Trigger, to, from string) bool {
	return t.Message != nil && t.Message.To == to && slices.Contains(t.Message.From, from)
}

// MatchEvent reports whether an event of task starts t.
func MatchEvent(t *workspace.Trigger, event string, task *workspace.Task) bool {
	e := t.Event
	if e == nil || task.Submission.Agent == "" || !slices.Contains(e.Events, event) || !slices.Contains(e.Agents, task.Submission.Agent) {
		return false
	}
	for k, v := range e.Labels {
		if task.Submission.Labels[k] != v {
			return false
		}
	}
	return true
}

// ParseGroup reads a message's group from its headers. Both are absent (nil), or both are there and right.
func ParseGroup(id, size string) (*workspace.Group, error) {
	if id == "" && size == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || strings.HasPrefix(size, "+") {
		return nil, fmt.Errorf("header %s must be a whole number", workspace.HeaderGroupSize)
	}
	g := &workspace.Group{ID: id, Size: n}
	return g, submission.CheckGroup(g)
}

// Join notes one more of a group. Who comes again replaces what it brought before. It reports whether
// anything changed, and whether all have come.
func Join(g *workspace.Gather, m workspace.GatherMember, depth int) (changed, complete bool) {
	if g.Task != "" {
		return false, true
	}
	if depth > g.Depth {
		g.Depth, changed = depth, true
	}
	i := slices.IndexFunc(g.Members, func(o workspace.GatherMember) bool { return o.Member == m.Member })
	switch {
	case i < 0 && len(g.Members) < g.Group.Size:
		g.Members, changed = append(g.Members, m), true
	case i >= 0 && g.Members[i].Sequence < m.Sequence:
		g.Members[i], changed = m, true
	}
	return changed, len(g.Members) >= g.Group.Size
}
