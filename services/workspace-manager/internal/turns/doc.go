// Package turns decides which waiting task is admitted next. It is an index in memory, fed by the log
// (the log is the record; the index is rebuilt from it at any time) and by the nodes' heartbeats.
//
//   - Room: the queue is kept shallow. A task is admitted only while fewer are on their way (being
//     admitted, queued, running on ready nodes) than the ready nodes have slots, plus a small margin
//     that hides the way from "finished" to "admitted". With no ready node nothing is admitted.
//   - Limits: per tenant, per workspace, per agent. A task over a limit is passed over and holds up no other.
//   - Between tenants: turns go to the tenant with the fewest on their way for its weight; between equals,
//     round robin by stride (a tenant's pass advances by 1/weight a turn).
//   - Within a tenant: priority, then age.
//
// Next reserves what it gives out until the log tells what became of it, or Release gives it back.
package turns
