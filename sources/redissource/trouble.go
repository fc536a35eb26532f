package redissource

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/sources/redisprogress"
)

// lasting reports whether an error does not pass by itself: the store has refused, or the
// client was closed.
func lasting(err error) bool {
	var refusal redis.Error
	return errors.As(err, &refusal) && !passes(err) || errors.Is(err, redis.ErrClosed)
}

// hints say what to do about a refusal, by the prefix of the reply.
var hints = []struct{ prefix, hint string }{
	{"OOM", "the store is full: raise maxmemory or let the consumers catch up; settling goes on, only pushes fail"},
	{"MISCONF", "the store cannot write to its disk and refuses every write: free its disk, or see INFO persistence"},
	{"READONLY", "this is a replica: connect to the master, by Sentinel or a cluster client"},
	{"NOAUTH", "the store wants a password: put it in the URL"},
	{"WRONGPASS", "the store refuses the password in the URL"},
	{"NOPERM", "the user of the URL lacks a right: see docs/operations.md for the list"},
	{"WRONGTYPE", "another program has written a key of ours: find it with TYPE and rename or delete it"},
	{"CLUSTERDOWN", "the cluster does not serve all its slots: see CLUSTER INFO"},
	{"LOADING", "the store loads its data and will answer when it has"},
}

// explain adds to a refusal of the store what to do about it.
func explain(err error) error {
	for _, h := range hints {
		if redis.HasErrorPrefix(err, h.prefix) {
			return fmt.Errorf("%w (%s)", err, h.hint)
		}
	}
	return err
}

// forgotten reports whether the server has forgotten the scripts: nothing was
// executed, and the next attempt brings them along.
func forgotten(err error) bool { return redisprogress.NoScript(err) }
