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
	cmds, err := pipe.Exec(ctx)
	if !errors.Is(err, redis.Nil) {
		return err
	}
	for _, cmd := range cmds { // err is but the first of theirs
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
