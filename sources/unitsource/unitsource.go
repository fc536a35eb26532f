package unitsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
	"github.com/countoff/countoff/partition/redisconfig"
)

// A Config is what a [Source] may be told. Zero is ready to use.
type Config struct {
	// Key of the list. Default "{name}:units". On a cluster it must have that tag. Another
	// key that the name itself has is refused, as "{name}:table".
	Key string
	// Partitions is in how many shares the units are granted: at least ten times as many
	// as there will be peers. It is written under the name if nobody has done so, and
	// compared otherwise. Default: what stands there, else 256.
	Partitions int
}

// A Source is the list of the units of a name. It implements framework.UnitSource. All
// methods may be called concurrently. The client stays the caller's.
type Source struct {
	client redis.UniversalClient
	name   string
	key    string
	total  int
	list   atomic.Bool // it was a list when it was looked at last, not a set
}

// New returns the list of the units of name. It does not talk to the store.
func New(client redis.UniversalClient, name string, cfg Config) (*Source, error) {
	err := partition.Config{Total: cfg.Partitions}.WithDefaults().Validate()
	if err := errors.Join(partition.CheckName(name), redisconfig.CheckLists(name, cfg.Key), err); err != nil {
		return nil, err
	}
	if err := redisconfig.Fits(client); err != nil {
		return nil, fmt.Errorf("unitsource: %w", err)
	}
	if cfg.Key == "" {
		cfg.Key = Key(name)
	}
	return &Source{client: client, name: name, key: cfg.Key, total: cfg.Partitions}, nil
}

// Name implements [partition.Named].
func (s *Source) Name() string { return s.name }

// Key returns the default key of the list of name.
func Key(name string) string { return redisconfig.Tag(name) + ":units" }

// Key returns the key of the list.
func (s *Source) Key() string { return s.key }

// Layout returns what all peers of the name agree on, the key of the list among it. It writes
// it if nothing stands, and fails with an error that wraps partition.ErrConfig if something else
// does.
func (s *Source) Layout(ctx context.Context) (partition.Config, error) {
	cfg, err := redisconfig.Units.Agree(ctx, s.client, s.name, partition.Config{Total: s.total, Hash: partition.XXHash64})
	if err != nil {
		return cfg, err
	}
	return cfg, redisconfig.AgreeList(ctx, s.client, s.name, s.key)
}

// Units returns all units, sorted, each once. A list that does not exist has none.
func (s *Source) Units(ctx context.Context) ([]string, error) {
	units, err := s.read(ctx, s.list.Load())
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.list.Store(!s.list.Load())
		units, err = s.read(ctx, s.list.Load())
	}
	if err != nil {
		return nil, s.failed("read", err)
	}
	slices.Sort(units)
	units = slices.Compact(units)
	if len(units) > 0 && units[0] == "" {
		units = units[1:] // an empty line is no unit
	}
	return units, nil
}

// read asks the master: by a replica that has not heard of the list yet every peer would end
// what it does.
func (s *Source) read(ctx context.Context, list bool) ([]string, error) {
	var units *redis.StringSliceCmd
	err := redisconfig.FromMaster(ctx, s.client, func(c redis.Cmdable) {
		if list {
			units = c.LRange(ctx, s.key, 0, -1)
		} else {
			units = c.SMembers(ctx, s.key)
		}
	})
	if err != nil {
		return nil, err
	}
	return units.Result()
}

// Add adds units. Those that are there already are left alone. It makes a set if there is
// nothing yet.
func (s *Source) Add(ctx context.Context, units ...string) error {
	if len(units) == 0 {
		return nil
	}
	for i, u := range units {
		if strings.TrimSpace(u) == "" {
			return fmt.Errorf("unitsource: unit %d is empty", i)
		}
		if err := partition.CheckUnit(u); err != nil {
			return fmt.Errorf("unitsource: add to %s: %w", s.key, err)
		}
	}
	err := s.client.SAdd(ctx, s.key, words(units)...).Err()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		_, err = s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, u := range units {
				p.LRem(ctx, s.key, 0, u) // or it would stand there twice
				p.RPush(ctx, s.key, u)
			}
			return nil
		})
	}
	return s.failed("add to", err)
}

// Remove removes units. Those that are not there are left alone.
func (s *Source) Remove(ctx context.Context, units ...string) error {
	if len(units) == 0 {
		return nil
	}
	err := s.client.SRem(ctx, s.key, words(units)...).Err()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		_, err = s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, u := range units {
				p.LRem(ctx, s.key, 0, u)
			}
			return nil
		})
	}
	return s.failed("remove from", err)
}

// failed is an error of the store, with what to do about it.
func (s *Source) failed(what string, err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		err = redisconfig.Advised(err, "it is neither a set nor a list: another program writes it. Rename or delete it, or give the units another key")
	}
	if err != nil {
		return fmt.Errorf("unitsource: %s %s: %w", what, s.key, redisconfig.Explain(err))
	}
	return nil
}

func words(units []string) []any {
	all := make([]any, len(units))
	for i, u := range units {
		all[i] = u
	}
	return all
}
