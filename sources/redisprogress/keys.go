package redisprogress

// Keys are the keys of one log. All of them must be in one cluster slot: give
// them the same hash tag.
type Keys struct {
	// Fence is the HASH of who may fetch and settle, and how far the log is done:
	// t token ('' = closed), e epoch, b base, n fenced writes, h may-be-started
	// below, s suspects below, a position that runs alone ('' = none), w '1' where
	// an owner waits for a bell; of a log elsewhere also i its life, and x where it
	// ends as last seen, for people.
	Fence string
	// Done is the ZSET of finished positions behind the base.
	Done string
	// Lifted is the HASH of positions that the base has passed and that are still
	// open; the values are envelopes, empty without a list.
	Lifted string
	// Tries is the HASH position -> tries, crashes, not-before, first error.
	Tries string
	// Delayed is the ZSET of envelopes that become due later.
	Delayed string
	// Dead is the LIST of dead letters.
	Dead string
	// Pending is the LIST of envelopes. Empty: the log is elsewhere (Kafka), and
	// only what is done of it is kept here.
	Pending string
}
