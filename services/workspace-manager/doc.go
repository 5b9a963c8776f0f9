// Package manager is the workspace-manager: it owns tenants' workspaces, agents, templates, triggers,
// warm pools, tasks, gathers, the records of interactive sandboxes and of their claims, and the nodes.
//
// # Subjects in
//
//	task.<tenant>.<workspace>.<principal>.submit   submissions, stream TASKS-<tenant>, consumer "manager"
//	msg.<tenant>.<workspace>.<to>.<from>           messages that may start triggers, consumer "manager-triggers"
//	evt.<tenant>.*.task.*                          its own log, for what must follow, consumer "manager-follow"
//	req.*.*.*.workspace-manager.<operation>        operations of principals: schemas/workspace.Op…
//	int.*.workspace-manager.<operation>            operations of nodes, services and the operator
//
// # Subjects out
//
//	evt.<tenant>.<workspace>.<entity>.<id>   its records; see schemas/workspace for the entities
//	queue.<pool or node>.<priority>          attempts waiting for a node, message id <task>/<attempt>
//	node.<node>.workspace-manager.…          sandbox-create, -kill, -extend, -pause, -resume, -fork, -snapshot, snapshot-remove, output, drain
//	int.workspace-manager.<service>.delete-workspace
//
// # States
//
// A task: pending → queued(N) → running(N) → complete, error, cancelled; or rejected at once. See
// internal/lifecycle for every transition. Who is admitted when: internal/turns.
//
// An interactive sandbox: creating → running ⇄ paused → stopped. What changes one is asked of its node first, and written then:
// asked again, the node changes nothing.
//
// # Warm pools
//
// A pool is a record beside its template's. The answer to a node's heartbeat has all that the node is to keep,
// resolved against their templates; its next heartbeats say what it has. Nothing is sent between, and a manager that
// starts again loses nothing but what nodes say anew within seconds. A node takes a member for a run by itself.
//
// # What happens when it fails
//
// Every change is one compare-and-set in the log; there is no second write that could be lost. Whatever
// must follow a record is done again until it is done, and doing it again changes nothing:
//
//   - Killed before the record: the submission is delivered again after its AckWait. After it: the
//     redelivery finds the task's id taken and is acknowledged.
//   - Killed after the record queued and before the queue message: the log's consumer is delivered the
//     event again, and the reconciler misses the message in the queue within seconds; both publish under
//     the same message id, and a second copy loses at the claim.
//   - Killed after claim or finish is recorded and before the reply: the node asks again and gets the same answer.
//   - A node that stops renewing: its attempts are lost after ClaimLease+ClaimGrace and go on under the
//     next number; what it reports later is a conflict. After a restart of the manager or a change of
//     the leader every claim counts as just renewed.
//   - A trigger or gather killed in the middle: delivered again; the task's key is derived from the
//     message's sequence or the group, so that it starts once.
//   - A sandbox asked for under a claim's name, killed before the name's record is written: nobody was asked for it,
//     and the reconciler ends its record. Of two who ask at once one writes the name; the other takes its record back.
//   - A deletion killed in the middle: the state "deleting" is written first, and the leader goes on with it.
//
// Admission, reconciliation, retention and deletion are done by the replica that holds the lease
// "workspace-manager"; all their effects are compare-and-sets, so that two leaders do no harm. All
// else every replica does. What is kept in memory (views of the log, the index of turns, when claims were
// renewed) is rebuilt from the log at the start.
package manager
