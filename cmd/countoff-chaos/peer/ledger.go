package peer

import (
	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisurl"
	"github.com/countoff/countoff/transition"
	"github.com/countoff/countoff/transition/redisledger"
)

// An OpenLedger is a ledger with a connection of its own.
type OpenLedger interface {
	transition.Ledger
	Close() error
}

// Open opens the ledger of name at a URL.
type Open func(url, name string, layout partition.Config, timing transition.Timing) (OpenLedger, error)

// OpenRedis is Open for Redis.
func OpenRedis(url, name string, layout partition.Config, timing transition.Timing) (OpenLedger, error) {
	client, err := redisurl.Open(url)
	if err != nil {
		return nil, err
	}
	ledger, err := redisledger.New(client, name, redisledger.Config{Config: layout, Timing: timing})
	if err != nil {
		return nil, err
	}
	return inRedis{ledger, client}, nil
}

type inRedis struct {
	*redisledger.Ledger
	client redis.UniversalClient
}

func (l inRedis) Close() error { return l.client.Close() }
