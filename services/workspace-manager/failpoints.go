package manager

import "github.com/weftmesh/weft/pkg/app/failpoint"

// Points at which a test kills the manager, each between two steps that belong together.
var (
	fpAfterRecord         = failpoint.Register("manager.after-record")
	fpBeforeAck           = failpoint.Register("manager.before-ack")
	fpAfterQueuedRecord   = failpoint.Register("manager.after-queued-record")
	fpAfterQueuePublish   = failpoint.Register("manager.after-queue-publish")
	fpAfterClaimRecord    = failpoint.Register("manager.after-claim-record")
	fpBeforeClaimReply    = failpoint.Register("manager.before-claim-reply")
	fpAfterFinishRecord   = failpoint.Register("manager.after-finish-record")
	fpAfterRetryRecord    = failpoint.Register("manager.after-retry-record")
	fpGatherAfterRecord   = failpoint.Register("manager.gather-after-record")
	fpTriggerBeforeSubmit = failpoint.Register("manager.trigger-before-submit")
	fpGatherBeforeFired   = failpoint.Register("manager.gather-before-fired")
	fpDeleteAfterMark     = failpoint.Register("manager.delete-after-mark")
	fpDeleteAfterPurge    = failpoint.Register("manager.delete-after-purge")
)
