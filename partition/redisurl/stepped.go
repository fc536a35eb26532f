package redisurl

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A stepped keeps the client of a cluster from asking which commands there are. Before a call go-redis wants to know
// how far apart its keys stand, and until some node has said so it asks one of its own choice, outside of the
// context of the call: where that one stands still, for up to 5 s. All keys but those of MSET and its like are one
// beside the other.
type stepped struct{}

func (stepped) DialHook(next redis.DialHook) redis.DialHook { return next }

func (stepped) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.Contains(cmd.Name(), "mset") {
			cmd.SetStepCount(1)
		}
		return next(ctx, cmd)
	}
}

func (stepped) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next // for a pipeline nothing is asked
}
