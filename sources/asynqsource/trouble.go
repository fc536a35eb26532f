package asynqsource

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// lasting reports whether an error does not pass by itself: the store has refused, or the
// client was closed.
func lasting(err error) bool { return refusal(err) || errors.Is(err, redis.ErrClosed) }

// refusal reports whether the store has answered with an error that does not pass.
func refusal(err error) bool {
	for _, passes := range []string{"LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, passes) {
			return false
		}
	}
	var answer redis.Error
	return errors.As(err, &answer)
}
