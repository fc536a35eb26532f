package redissource

import (
	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/sources/redisprogress"
)

// Keys are the names of everything that Redis holds of one partition. They share
// the hash tag {name:partition}, so that one logical queue spreads over a cluster
// while each partition stays on one node.
type Keys struct {
	redisprogress.Keys
	// Bell is the channel on which an owner that waits is woken.
	Bell string

	tag string
}

// KeysOf returns the keys of partition id of name.
func KeysOf(name string, id partition.ID) Keys {
	tag := "{" + name + ":" + id.String() + "}"
	return Keys{
		Keys: redisprogress.Keys{
			Pending: tag + ":pending",
			Fence:   tag + ":fence",
			Done:    tag + ":done",
			Lifted:  tag + ":lifted",
			Tries:   tag + ":tries",
			Delayed: tag + ":delayed",
			Dead:    tag + ":dead",
		},
		Bell: tag + ":bell",
		tag:  tag,
	}
}

// eachKey returns the same key of each of the partitions ids of name.
func eachKey(name string, ids []partition.ID, key func(Keys) string) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = key(KeysOf(name, id))
	}
	return keys
}

// Unique is the key that says that a task with this id is queued already. It is
// set with an expiry by the push, and deleted when the task is done or dead.
func (k Keys) Unique(id string) string { return k.tag + ":unique:" + id }

// Mark is the key of how far the pushes of one session (a producer's, or
// unit-era of an ingress) have come in this partition.
func (k Keys) Mark(session string) string { return k.tag + ":mark:" + session }
