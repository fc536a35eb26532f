package redisconfig

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/countoff/countoff/partition"
)

const (
	// resizing stands in place of the protocol while tasks are moved to another number
	// of partitions: peers and producers, of any version, refuse to start.
	resizing    = "resizing"
	fieldResize = "resize" // "from to id"
)

// A Resize is a change of the number of partitions that is under way.
type Resize struct {
	Config   partition.Config // as it was; Total is what it comes from
	To       int
	ID       string // names this change among all of the name
	Standing bool   // it was begun before
}

// BeginResize closes name to peers and producers that start, until [EndResize] or
// [CancelResize]. If a change is under way, it returns that one: with another goal the
// error wraps partition.ErrConfig. id names the change if it is new.
func BeginResize(ctx context.Context, client redis.UniversalClient, name string, to int, id string) (Resize, error) {
	fields, err := read(ctx, client, name)
	if err != nil {
		return Resize{}, err
	}
	standing := fields[fieldProtocol] == resizing
	if standing {
		fields[fieldProtocol] = strconv.Itoa(partition.Protocol)
	}
	if fields[fieldTotal] == "" {
		return Resize{}, fmt.Errorf("redisconfig: %s: %w", Key(name), ErrNone)
	}
	c, err := parse(name, fields)
	if err != nil {
		return Resize{}, err
	}
	if err := (partition.Config{Total: to, Hash: c.Hash}).Validate(); err != nil {
		return Resize{}, err
	}
	if !standing {
		if c.Total == to {
			return Resize{Config: c, To: to}, nil
		}
		fields[fieldResize] = fmt.Sprintf("%d %d %s", c.Total, to, id)
		if err := client.HSet(ctx, Key(name), fieldResize, fields[fieldResize], fieldProtocol, resizing).Err(); err != nil {
			return Resize{}, fmt.Errorf("redisconfig: write %s: %w", Key(name), err)
		}
	}
	r := Resize{Config: c, Standing: standing}
	if _, err := fmt.Sscanf(fields[fieldResize], "%d %d %s", &r.Config.Total, &r.To, &r.ID); err != nil {
		return Resize{}, fmt.Errorf("redisconfig: %s: resize is %q: %w", Key(name), fields[fieldResize], err)
	}
	if r.To != to {
		return Resize{}, fmt.Errorf("redisconfig: %s: a change from %d to %d partitions is under way: finish it first: %w",
			Key(name), r.Config.Total, r.To, partition.ErrConfig)
	}
	return r, nil
}

// EndResize opens name with the new number of partitions.
func EndResize(ctx context.Context, client redis.UniversalClient, name string, r Resize) error {
	return reopen(ctx, client, name, r, r.To)
}

// CancelResize opens name as it was. Nothing may have been moved.
func CancelResize(ctx context.Context, client redis.UniversalClient, name string, r Resize) error {
	return reopen(ctx, client, name, r, r.Config.Total)
}

func reopen(ctx context.Context, client redis.UniversalClient, name string, r Resize, total int) error {
	protocol := partition.Protocol
	if len(r.Config.Requires) > 0 {
		protocol = partition.TagsProtocol
	}
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, Key(name), fieldProtocol, protocol, fieldTotal, total)
		p.HDel(ctx, Key(name), fieldResize)
		return nil
	})
	if err != nil {
		return fmt.Errorf("redisconfig: write %s: %w", Key(name), err)
	}
	return nil
}

// errResizing is what those are told who start while a change is under way.
func errResizing(name string, fields map[string]string) error {
	return fmt.Errorf("redisconfig: %s: the number of partitions is being changed (%s): if that was broken off, finish it: countoff resize: %w",
		Key(name), fields[fieldResize], partition.ErrConfig)
}
