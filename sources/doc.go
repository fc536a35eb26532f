// Package sources is the contract between the framework and the places where tasks
// come from.
//
// A [Source] opens partitions; a [Stream] is one ownership of one partition, from a
// grant to its release. There are memsource in memory, redissource over Redis lists,
// kafkasource over a topic, asynqsource over queues of asynq, and the one you write.
// docs/sources.md does that step by step, and examples/filesource is its result. Package
// jobs describes periodic tasks. A list of long-running work, as in unitsource, is not a
// Source: see framework.UnitSource.
//
// # How to write a source
//
// Find in your broker, for each partition, a place where a change of several facts
// is one step: a script, a transaction, a file that is replaced. Keep there
//
//   - the fence: the token of the owner, compared whole with each call that reads or
//     writes for it, and the newest epoch, which only rises;
//   - what is done, by positions that are never used again, so that an outcome that
//     is said twice, or comes late, finds its position finished and does nothing;
//   - what is known of the tasks that are not done: how often they ran, when they
//     may run again, the first error.
//
// Then
//
//   - Open compares and raises. The same token again changes nothing, because the
//     answer to the first may have been lost. A refusal names the epoch that stands.
//   - Fetch hands out each open task once, in order, and waits for the next one.
//     What the caller could not be given, because its context ended or an answer
//     was lost, is given by the next Fetch.
//   - Settle ties every effect to a position that is still open, and returns when the
//     store has answered. If it fails the caller says it again.
//   - Close clears the fence, if it is still the stream's, and nothing else: what was
//     not settled stays where it is.
//
// What the caller has in hand is the stream's to know, in memory; it is worth
// nothing to the next owner, who reads the store. The store does not need to know
// who is alive: that is the ledger's business.
//
// A source that can tell what was started when an owner died hands that out alone
// to the next one, and charges a crash only to a task that ran alone. It may leave
// that out and say so.
//
// Where the tasks lie in a log that has no fence of its own, packages logstream, progress and
// redisprogress are all of it but the log.
//
// A source does not retry on its own what it could report, does not log, and starts
// no goroutine that its streams' Close does not wait for. The client is closed by the program
// that made it. Package sourcetest has a test for each of these sentences.
package sources
