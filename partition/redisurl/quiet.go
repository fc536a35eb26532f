package redisurl

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Quiet switches off the log that go-redis has for the whole process, to stderr: each attempt to
// reach a server that is away is several lines of it, which say the same as the errors of the calls.
// It is for programs, before they use a client; [redis.SetLogger] after it has its way.
func Quiet() { redis.SetLogger(unread{}) }

// unread is a log that nobody reads.
type unread struct{}

func (unread) Printf(context.Context, string, ...any) {}
