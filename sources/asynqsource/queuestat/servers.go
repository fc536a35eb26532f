package queuestat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition/redisconfig"
	"github.com/countoff/countoff/sources/asynqsource/internal/wire"
)

// AllServers is the key of the sorted set in which asynq's servers list the keys of what
// they say of themselves.
const AllServers = "asynq:servers"

const markPrefix = "countoff-"

// Mark is the queue by which the servers of the peers of name are known: they all list it,
// and nobody fills it.
func Mark(name string) string { return markPrefix + name }

// A Server is an asynq.Server, as it says of itself.
type Server struct {
	ID     string // asynq's
	Host   string
	PID    int
	Since  time.Time
	Queues []string
}

// Servers lists the servers that live. What one says of itself lasts for some ten seconds,
// by the store's clock, so one that was killed is listed for no longer.
func Servers(ctx context.Context, client redis.UniversalClient) ([]Server, error) {
	keys, err := client.ZRange(ctx, AllServers, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queuestat: list asynq's servers: %w", err)
	}
	pipe := client.Pipeline()
	said := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		said[i] = pipe.Get(ctx, key)
	}
	redisconfig.Exec(ctx, pipe)
	var all []Server
	for i, cmd := range said {
		if errors.Is(cmd.Err(), redis.Nil) {
			continue // it is gone
		}
		if err := cmd.Err(); err != nil {
			return nil, fmt.Errorf("queuestat: list asynq's servers: %w", err)
		}
		s, err := parseServer(cmd.Val())
		if err != nil {
			return nil, fmt.Errorf("queuestat: %s: %w", keys[i], err)
		}
		all = append(all, s)
	}
	return all, nil
}

// parseServer reads an encoded ServerInfo (internal/proto/asynq.proto of asynq).
func parseServer(raw string) (s Server, err error) {
	err = wire.Fields(raw, func(field int, n uint64, text string) error {
		switch field {
		case 1:
			s.Host = text
		case 2:
			s.PID = int(int32(n))
		case 3:
			s.ID = text
		case 5:
			return wire.Fields(text, func(field int, _ uint64, queue string) error {
				if field == 1 { // of an entry of the map: 2 is the weight
					s.Queues = append(s.Queues, queue)
				}
				return nil
			})
		case 8:
			var seconds, nanos int64
			err := wire.Fields(text, func(field int, n uint64, _ string) error {
				switch field {
				case 1:
					seconds = int64(n)
				case 2:
					nanos = int64(n)
				}
				return nil
			})
			s.Since = time.Unix(seconds, nanos).UTC()
			return err
		}
		return nil
	})
	return s, err
}

// A Stranger is a server that consumes a queue of a name and is not of its peers.
type Stranger struct {
	Server
	Queue string // of the name
	// Peer is the name of countoff's whose peer it is; empty: it is a plain asynq.Server.
	Peer string
}

// Strangers are those of servers that consume one of the queues of name and are not of its
// peers.
func Strangers(servers []Server, name string, queues []string) []Stranger {
	ours := make(map[string]bool, len(queues))
	for _, q := range queues {
		ours[q] = true
	}
	var all []Stranger
	for _, s := range servers {
		if slices.Contains(s.Queues, Mark(name)) {
			continue
		}
		found := Stranger{Server: s}
		for _, q := range slices.Sorted(slices.Values(s.Queues)) { // the same one each time
			if other, marked := strings.CutPrefix(q, markPrefix); marked {
				found.Peer = other
			}
			if found.Queue == "" && ours[q] {
				found.Queue = q
			}
		}
		if found.Queue != "" {
			all = append(all, found)
		}
	}
	return all
}
