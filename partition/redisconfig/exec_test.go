package redisconfig_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/partition/redistest"
)

// A server that refuses the connection has answered no command of a pipeline, and each says so.
func TestARefusedConnectionIsSaidOfEachCommand(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), redistest.Name(t)
	refused := false
	client := redistest.Refusing(t, redistest.Server(t), func([]redis.Cmder) bool { return refused })
	pipe := client.Pipeline()
	one, two := pipe.Get(ctx, name), pipe.LLen(ctx, name)
	if cmds := redisconfig.Exec(ctx, pipe); len(cmds) != 2 || !errors.Is(one.Err(), redis.Nil) || two.Err() != nil {
		t.Errorf("of a connection: %v, %v, %v", cmds, one, two)
	}
	refused = true
	pipe = client.Pipeline()
	one, two = pipe.Get(ctx, name), pipe.LLen(ctx, name)
	redisconfig.Exec(ctx, pipe)
	for _, err := range []error{one.Err(), two.Err()} {
		if !redis.HasErrorPrefix(err, "WRONGPASS") {
			t.Errorf("of a refused connection: %v", err)
		}
	}
	asked := redisconfig.EachNode(ctx, client, []string{name}, func(pipe redis.Pipeliner, _ int) { pipe.LLen(ctx, name) })
	if err := asked[0][0].Err(); !redis.HasErrorPrefix(err, "WRONGPASS") {
		t.Errorf("of a node: %v", err)
	}
}
