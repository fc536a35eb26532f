package redisconfig

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Exec runs a pipeline of which each command is asked for its own error. go-redis leaves the words by which a server
// refuses the connection itself (a password that is not right any more, too many clients) off the commands, which
// then look answered, with nothing: Exec says them of each.
func Exec(ctx context.Context, pipe redis.Pipeliner) []redis.Cmder {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return cmds // it had a connection, or was told otherwise
		}
	}
	if err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return cmds
}
