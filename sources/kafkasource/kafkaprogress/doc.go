// Package kafkaprogress keeps what is done of a topic in Kafka itself: for peers of
// kafkasource that shall keep nothing of it in Redis.
//
// Its one idea: the progress of a partition is the metadata of its offset in a group, and
// only the producer that was last initialized for the partition's transactional id can
// commit it. Who initializes it, then reads, then commits, so has compared and set: what
// it read is what it replaced, or the broker refuses the commit. The owner's epoch stands
// in the metadata, so that one who comes too late finds a greater one and gives up, and
// one who was fenced by it finds its own and goes on.
//
// What a partition has done behind its base must fit into the metadata; what does not is
// done again by the next owner. docs/kafka.md has the figures.
package kafkaprogress
