// Package records keeps records in the log. A change of a record is one publish to its evt subject with
// the expected last sequence of that subject; the message carries the event's type in its headers and the
// whole record after the change. The last message is the state, the earlier ones are the history. There is
// no second write that could be lost.
//
// Every reader drops messages that have no type, a foreign type, or whose ce-subject is not the subject on
// which they lie: a message that was brought there by anything but a Store is no record.
package records
