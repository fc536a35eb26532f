// Package redisclient is where the rooms of frameworkfx have their Redis client from.
package redisclient

import (
	"context"
	"fmt"
	"sync"

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
		opened, err := Open(url)
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

// Open returns a client of url; see package redisurl. go-redis has one log for the whole process,
// to stderr, where each attempt to connect to a server that is away is several lines beside what the
// observers are told: with the first client that an application leaves to us it is switched off.
func Open(url string) (redis.UniversalClient, error) {
	quieten()
	return redisurl.Open(url)
}

var quieten = sync.OnceFunc(redisurl.Quiet)
