// Package indexertest proves an indexer right: [Run] takes one through everything
// that partition.Indexer promises. Views may be late, and peers may disagree for a
// moment, but in calm they must come to agree: indexes 0 to n-1, each once, the same
// number of replicas for everybody, and wishes that share out all there is.
//
// It runs in testing/synctest bubbles, where hours cost nothing, or in real time.
package indexertest
