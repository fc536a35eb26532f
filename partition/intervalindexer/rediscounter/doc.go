// Package rediscounter counts intervals in Redis, single or cluster: the keys of a
// name are of one slot.
package rediscounter
