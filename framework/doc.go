// Package framework runs handlers over the partitions a peer was granted.
//
// A [Consumer] is a name, a source, a handler and a configuration. It counts off
// with its peers through a ledger and opens one lane for each grant: a lane opens
// its stream, fetches ahead as far as tasks can be started soon, hands them to the
// consumer's one pool of workers, settles in batches and closes. Tasks of one key
// run one at a time and in order; different keys run in parallel, whatever
// partition they are in; tasks without a key are unordered.
//
// What becomes of a task is the error its handler returns: nil is done,
// [RetryAfter] and [Dead] say what they want, everything else is retried as the
// [RetryPolicy] says. Everything that happens is an [Event].
//
// Work that no source hands out has peers of its own: [Units] runs a handler for each unit
// of a list for as long as this peer owns it, a [Share] says which keys are this process's,
// and [Single] runs one job on one peer at a time. A [Runtime] starts and stops several
// consumers and units of one process together.
//
// The stop order belongs to the consumer: fetching stops, handlers end, what ended
// is settled, the partition is released, the peer leaves. The clients of stores
// and brokers are the application's: it closes them after Stop has returned.
package framework
