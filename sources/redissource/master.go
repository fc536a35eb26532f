package redissource

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// readMaster reads keys of one slot where they are written. A client of a cluster may be
// told to read from replicas (ReadOnly, RouteByLatency), which lag: what an owner decides by
// the answer would be decided by what was. What shares a pipeline with a write goes to the
// master, so one goes first, to the slot's fence, that changes nothing and that a full store
// takes: it takes no transaction. That a key is not there is no error here; what else keeps one of
// the commands from an answer is, whichever came before it.
func readMaster(ctx context.Context, client redis.UniversalClient, fence string, queue func(redis.Pipeliner)) error {
	pipe := client.Pipeline()
	pipe.HDel(ctx, fence, "")
	queue(pipe)
	cmds, err := pipe.Exec(ctx) // the first error of them
	for i := 0; errors.Is(err, redis.Nil); i++ {
		if i == len(cmds) {
			return nil
		}
		if next := cmds[i].Err(); next != nil && !errors.Is(next, redis.Nil) {
			err = next
		}
	}
	return err
}
