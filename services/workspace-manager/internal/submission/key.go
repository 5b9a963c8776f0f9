package submission

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/schemas"
)

// reserved begin the keys that the manager makes itself. A sender may not use them, or it could take
// the task id of somebody's later submission, trigger or retry, which would then count as a repeat.
var reserved = []string{"seq-", "trigger-", "gather-", "retry-"}

// SequenceKey is the key of a submission that brought none.
func SequenceKey(sequence uint64) string { return "seq-" + strconv.FormatUint(sequence, 10) }

// TriggerKey is the key of the task that trigger starts for what stands at sequence of stream ("msg" or "log").
func TriggerKey(trigger, stream string, sequence uint64) string {
	return "trigger-" + trigger + "-" + stream + "-" + strconv.FormatUint(sequence, 10)
}

// GatherKey is the key of the one task that a gathering trigger starts for a group.
func GatherKey(gather string) string { return "gather-" + gather }

// RetryKey is the key of the task that repeats task.
func RetryKey(task string) string { return "retry-" + task }

// CheckKey refuses a sender's key that is malformed or one of the manager's own.
func CheckKey(key string) error {
	if err := schemas.CheckKey("ce-id", key); err != nil {
		return err
	}
	for _, p := range reserved {
		if strings.HasPrefix(key, p) {
			return fmt.Errorf("ce-id %q begins with %q, which is reserved; choose another", clip(key), p)
		}
	}
	return nil
}
