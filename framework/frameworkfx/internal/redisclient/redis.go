// Package redisclient is where the rooms of frameworkfx have their Redis client from.
package redisclient

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/partition/redisurl"
)

// Of returns a client of url, which is closed after everything that was made after it
// has stopped, or without a url the one that the application provides. Room is for the
// error.
func Of(l fx.Lifecycle, room, url string, provided redis.UniversalClient) (redis.UniversalClient, error) {
	switch {
	case url != "":
		opened, err := redisurl.Open(url)
		if err != nil {
			return nil, err
		}
		l.Append(fx.StopHook(func(context.Context) error { return opened.Close() })) // hooks run backwards
		return opened, nil
	case provided == nil:
		return nil, fmt.Errorf("%s: no Redis URL, and the application provides no redis.UniversalClient", room)
	}
	return provided, nil
}
