// Package progress knows what of a log is done. It is the client's half of the
// rules under a partition (docs/protocol.md): which tasks may be handed out, what
// the next request to the store says, and what an answer changes.
//
// It is pure: positions, hashes of keys and instants go in, positions come out. It
// holds no payloads and knows no store, so lists in Redis and topics of Kafka share
// it.
package progress
