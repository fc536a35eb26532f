// Package partition holds the words countoff is made of, as values and pure
// functions: no clock, no I/O, no goroutine.
//
// A service is N identical processes, its peers. Each task has a key, a key
// belongs to one of a fixed number of partitions ([Of], [OfID]), and a
// partition belongs to one peer at a time. Who that is, is said three times, each
// time with more weight:
//
//   - an indexer wishes: a [View] tells a peer its index, the number of replicas
//     and the partitions it should have;
//   - the ledger grants: a [Grant] is a partition and an [Epoch], and the epochs
//     of a partition only rise;
//   - the fence admits: a [Token] stands beside the data of the partition and is
//     compared whole with every fetch and every settle.
//
// Wishes may be late or disagree for a moment: nothing unsafe follows from it.
package partition
