// Package redisclient is where the rooms of frameworkfx have their Redis clients from.
package redisclient

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/partition/redisurl"
)

// Clients are those of a consumer. What keeps its partitions waits for no connection that
// tasks hold.
type Clients struct {
	Tasks   redis.UniversalClient
	Control redis.UniversalClient // of the ledger and the counter
}

// Given are the clients that the application provides.
type Given struct {
	fx.In
	Tasks   redis.UniversalClient `optional:"true"`
	Control redis.UniversalClient `optional:"true" name:"countoff.control"`
}

// Of returns clients of url, which are closed after everything that was made after them
// has stopped, or without a url those that the application provides. Room is for the
// error.
func Of(l fx.Lifecycle, room, url string, given Given) (Clients, error) {
	switch {
	case url != "":
		tasks, err := Open(url)
		if err != nil {
			return Clients{}, err
		}
		control, err := OpenControl(url)
		if err != nil { // none that the first would not have had, but for a file that is gone
			_ = tasks.Close()
			return Clients{}, err
		}
		for _, opened := range []redis.UniversalClient{tasks, control} {
			l.Append(fx.StopHook(func(context.Context) error { return opened.Close() })) // hooks run backwards
		}
		return Clients{tasks, control}, nil
	case given.Tasks == nil:
		return Clients{}, fmt.Errorf("%s: no Redis URL, and the application provides no redis.UniversalClient (fx.As makes one of a *redis.Client)", room)
	case given.Control == nil:
		return Clients{given.Tasks, given.Tasks}, nil
	}
	return Clients{given.Tasks, given.Control}, nil
}

// Open returns a client of url for tasks; see package redisurl. go-redis has one log for the whole process,
// to stderr, where each attempt to connect to a server that is away is several lines beside what the
// observers are told: with the first client that an application leaves to us it is switched off.
func Open(url string) (redis.UniversalClient, error) {
	quieten()
	return redisurl.OpenTasks(url)
}

// OpenControl is Open for the ledger and the counter.
func OpenControl(url string) (redis.UniversalClient, error) {
	quieten()
	return redisurl.OpenControl(url)
}

var quieten = sync.OnceFunc(redisurl.Quiet)
