// Package transition compares what partitions of a Kafka topic go through when peers come,
// leave and die: of countoff, and of a consumer group of franz-go with cooperative-sticky
// balancing and with the protocol of KIP-848.
//
// Peers are processes of their own, which say each record that they begin, and each that
// they have handled. Records come at a steady rate, so every partition always has work: a
// pause is how long a record waited longer than for the record before it. Lost is a record
// that the broker has and that nobody has handled to its end, a minute after the last one.
package transition
