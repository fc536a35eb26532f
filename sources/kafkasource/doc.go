// Package kafkasource is a source over a Kafka topic, without a consumer group.
//
// Its one idea: the topic is only read, by position; who may work on a partition, and
// what of it is done, is kept under the fence in a [Store]: beside the ledger (package
// redisprogress), or in Kafka (package kafkaprogress). So there is no consumer group and
// no rebalance: a partition changes hands alone, drained, while
// the others work on. Handlers of one partition run side by side and end in any order,
// since what is done is a base and a set behind it, not one offset.
//
// A peer has one client that consumes directly the partitions it was granted. Reads
// are not fenced, and need not be: what a paused owner has read it can neither start,
// once its lease is over, nor settle. The lowest open position is mirrored into a
// Kafka group, so that tools that show lag keep working; the group decides
// nothing, but it is a safe place to start if the store has lost everything.
//
// docs/kafka.md tells how to run it.
package kafkasource
