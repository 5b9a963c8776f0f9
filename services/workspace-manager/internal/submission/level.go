package submission

import (
	"fmt"

	"github.com/weftmesh/weft/schemas/workspace"
)

// checkLevel takes the levels that a request can ask for. What custom means, only a template states.
func checkLevel(asked string) error {
	switch asked {
	case "", workspace.LevelStandard, workspace.LevelHigh:
		return nil
	}
	return fmt.Errorf(`field "level" must be %s or %s, not %q`, workspace.LevelStandard, workspace.LevelHigh, clip(asked))
}

// CheckLevel refuses a level for one run that is weaker than what the agent or its template says: a request may
// only ask for more. a may be nil.
func CheckLevel(asked string, a *workspace.Agent, t *workspace.Template) error {
	if err := checkLevel(asked); err != nil || asked == "" {
		return err
	}
	own := t.Level
	if a != nil {
		own = first(a.Level, t.Level)
	}
	if own = first(own, DefaultLevel); own == asked || own == workspace.LevelStandard {
		return nil
	}
	return fmt.Errorf(`field "level": the definition says %s, and one run can't have %s instead; leave it out`, own, asked)
}
