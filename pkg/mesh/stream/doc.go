// Package stream is the one byte-stream protocol of the mesh: exec, terminals, file transfer and port
// forwarding. It runs over core NATS, which drops for slow readers and forgets at a disconnect, and
// gives back what programs expect of a connection: every byte once and in order, flow control,
// half-close, a reason when it breaks, and it goes on after a disconnect where it had stopped.
//
// # Subjects
//
// A client opens a stream by a request to an operation. The header Weft-Frame: open and an id that the
// client made tell it from a plain request. What the server sends, all of it, are replies to that
// request; so the operation's export must have response type Stream. What the client sends goes to the
// operation's subject with the operation replaced by "s.<id>":
//
//	open    weft.v1.sbx.acme.demo.<sandbox>.alice.exec        reply _INBOX.alice.…
//	client  weft.v1.sbx.acme.demo.<sandbox>.alice.s.<id>
//	server  _INBOX.alice.…
//
// The server subscribes to exactly that subject. Tenant, workspace and principal in it are pinned by
// the NATS server, so no other principal can inject. A reply subject crosses accounts through a mapping
// that lives in the NATS server and dies with a disconnect or after its idle threshold; the client
// makes a new one by every status frame that it sends with a reply subject, and the server always
// answers to the newest.
//
// # Frames
//
// A stream has channels with names, each with two directions. The header Weft-Frame says what a message is:
//
//	open    client: the operation's request as JSON, headers Weft-Stream-Id, and Weft-Ended with the names of channels
//	        (with commas) on which the client will send nothing, which spares a frame for each
//	opened  server: {"subject": …, "window": …}; not sent where the handler says something at once: whatever comes first
//	        tells that the stream is open
//	data    1 byte to 64 KiB of a channel; headers Weft-Stream (its name), Weft-Offset (of the first byte), and
//	        Weft-End (eof or error) where nothing follows
//	status  what the sender has sent and received of each channel, see status; also credit, end and keepalive
//	reset   {"code": …, "message": …}: the stream is over, now
//
// No frame has an empty body: an empty reply ends a Stream mapping, and the server sends one last of all.
//
// # Rules
//
// A sender may send up to the limit that the receiver told, at first one window (1 MiB), and keeps what
// is not acknowledged. A receiver takes only the next offset: what it has is trimmed, what lies beyond a
// gap is dropped and asked for again, from the last contiguous offset. A status whose "sent" lies beyond
// what was received shows a lost tail, because one connection's messages stay in order; whoever waits
// for an acknowledgement sends one after a second. Sending beyond the limit is answered by a reset.
//
// The channel "control" carries messages (resize, signal …) as lines of JSON, the channel "result" the
// handler's result or fault. A stream is complete when the client has everything up to the result.
package stream
