package secrets

import "time"

// AuditCategory is the category under which the entries below are written: audit.<tenant>.secret.
const AuditCategory = "secret"

// What an audit entry is about.
const (
	AuditPut         = "put"
	AuditDelete      = "delete"
	AuditGrant       = "grant"
	AuditGrantRevoke = "grant-revoke"
	AuditIssue       = "issue"
	AuditRenew       = "renew" // only when it failed
	AuditRevoke      = "revoke"
	AuditUse         = "use" // a request through a sandbox's forwarded address
)

// Audit is the body of an audit entry. Which fields are set depends on the action. It holds names, never values.
type Audit struct {
	Time      time.Time `json:"time"`
	Action    string    `json:"action"`
	Code      string    `json:"code,omitempty"`    // why it failed or was refused; empty if it went well
	Message   string    `json:"message,omitempty"` // the sentence that belongs to the code
	Tenant    string    `json:"tenant"`
	Workspace string    `json:"workspace,omitempty"`
	Principal string    `json:"principal,omitempty"` // who asked
	Agent     string    `json:"agent,omitempty"`     // for whom
	Node      string    `json:"node,omitempty"`
	Task      string    `json:"task,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"`
	Secrets   []string  `json:"secrets,omitempty"`
	Reason    string    `json:"reason,omitempty"` // of a revocation
	Method    string    `json:"method,omitempty"` // of a use
	Path      string    `json:"path,omitempty"`   // of a use, as it was asked for, clipped
	Status    int       `json:"status,omitempty"` // of a use, as it was answered
}
