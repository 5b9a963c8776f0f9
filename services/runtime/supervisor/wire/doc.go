// Package wire is what the node and weft-init, process 1 of a sandbox, say to each other: a
// handshake that proves to each side who the other is, then one yamux session, and on each of its
// streams frames of at most 64 KiB.
//
// Either side opens streams. The first message on a stream is a Request that names an operation;
// the other side answers with a Reply or an Error, and what follows depends on the operation:
//
//	start, attach   output, exit ↓   ack, forget ↑
//	stdin           data, eof ↑      accepted ↓
//	read, list      data, eof ↓
//	write           data, eof ↑      reply ↓
//	dial, forward   data, eof both ways
//	all others      one reply
//
// A stream that ends without its last message was cut: the connection died, and the operation's
// outcome is not known. Nothing here trusts a length, an offset or an order that the other side sent.
package wire
