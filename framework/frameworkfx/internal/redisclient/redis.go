// Package redisclient makes the Redis clients of the packages under frameworkfx.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/countoff/countoff/partition/redisconfig"
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
	Opened  *Clients              `optional:"true"` // of redisfx.Client
}

// Of returns clients of url, see [Open], or without a url those that the application provides. Room is
// for the error.
func Of(l fx.Lifecycle, room, url string, given Given) (Clients, error) {
	switch {
	case url != "":
		return Open(l, url)
	case given.Tasks == nil:
		return Clients{}, fmt.Errorf("%s: no Redis URL, and the application provides no redis.UniversalClient (fx.As makes one of a *redis.Client)", room)
	case redisconfig.Fits(given.Tasks) != nil:
		return Clients{}, fmt.Errorf("%s: %w", room, redisconfig.Fits(given.Tasks))
	case given.Control != nil && redisconfig.Fits(given.Control) != nil:
		return Clients{}, fmt.Errorf("%s, the ledger: %w", room, redisconfig.Fits(given.Control))
	case given.Control != nil:
		return Clients{given.Tasks, given.Control}, nil
	case given.Opened != nil && given.Opened.Tasks == given.Tasks: // and none that replaces it, which may lead elsewhere
		return *given.Opened, nil
	}
	return Clients{given.Tasks, given.Tasks}, nil
}

// Faults joins what [Of] and those who were to have its clients say is wrong: that there is none is said by Of, which
// knows why, and by nobody else.
func Faults(errs ...error) error {
	var all []error
	for _, err := range errs {
		if errors.Is(err, redisconfig.ErrNoClient) {
			joined, is := err.(interface{ Unwrap() []error })
			if !is {
				continue
			}
			err = Faults(joined.Unwrap()...)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// CheckReplicas returns an error if a ledger cannot wait for so many replicas. Room is for the error.
func CheckReplicas(room string, replicas int) error {
	if replicas < 0 {
		return fmt.Errorf("%s: WaitReplicas %d: want 0 or more", room, replicas)
	}
	return nil
}

// Open returns clients of url, which are closed after everything that was made after them has stopped; see
// package redisurl. go-redis has one log for the whole process,
// to stderr, where each attempt to connect to a server that is away is several lines beside what the
// observers are told: with the first client that an application leaves to us it is switched off.
func Open(l fx.Lifecycle, url string) (Clients, error) {
	quieten()
	tasks, err := redisurl.OpenTasks(url)
	if err != nil {
		return Clients{}, err
	}
	control, err := redisurl.OpenControl(url)
	if err != nil { // none that the first would not have had, but for a file that is gone
		_ = tasks.Close()
		return Clients{}, err
	}
	for _, opened := range []redis.UniversalClient{tasks, control} {
		l.Append(fx.StopHook(func(context.Context) error { return opened.Close() })) // hooks run backwards
	}
	return Clients{tasks, control}, nil
}

var quieten = sync.OnceFunc(redisurl.Quiet)
