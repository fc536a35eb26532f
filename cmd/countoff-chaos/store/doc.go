// Package store runs the Redis servers of a chaos run: one with an append only file,
// or a master and its replica under three Sentinels.
package store
