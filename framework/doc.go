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
// The stop order belongs to the consumer: fetching stops, handlers end, what ended
// is settled, the partition is released, the peer leaves. The clients of stores
// and brokers are the application's: it closes them after Stop has returned.
package framework
